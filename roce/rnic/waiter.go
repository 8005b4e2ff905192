//go:build rnic && cgo

package rnic

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/goroce/goroce/ib"
)

// waiter waits until a file descriptor of libibverbs is readable, without blocking a thread: Go's
// network poller watches a duplicate of it. The descriptor may be that of the device's asynchronous events, of a
// completion channel, or of a channel of librdmacm.
//
// The poller is edge-triggered: it tells when events come, not that some are left. So a function that takes an event
// must report that there is none only if the library has said so (EAGAIN).
type waiter struct {
	file *os.File
	conn syscall.RawConn
	busy chan struct{} // full during a wait: there can be one at a time, as deadlines are per file
	gone chan struct{} // closed by close
	once sync.Once
}

// newWaiter returns a waiter for fd, which stays the library's. The owner closes the waiter before it lets the library
// close fd: take reads from fd by its number, which another file of the process may get afterwards. name is for
// errors.
func newWaiter(fd int, name string) (*waiter, error) {
	// The flag is that of the open file, so that the library's own reads do not block either.
	if err := unix.SetNonblock(fd, true); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	// An os.File closes its descriptor, and the library closes its own.
	dup, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	w := &waiter{file: os.NewFile(uintptr(dup), name), busy: make(chan struct{}, 1), gone: make(chan struct{})}
	if w.conn, err = w.file.SyscallConn(); err == nil {
		err = w.file.SetReadDeadline(time.Time{}) // fails if the file cannot be polled
	}
	if err != nil {
		w.file.Close()
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return w, nil
}

// wait calls take until it returns true or an error, ctx ends, or the waiter is closed. Between
// calls it waits until the descriptor is readable. Calls of take are never concurrent, and none
// follows close.
//
// take runs on the goroutine of the caller. Other callers wait for their turn until this one has its event. take must
// not wait for whoever calls close, since close waits for it.
func (w *waiter) wait(ctx context.Context, take func() (bool, error)) error {
	select {
	case <-w.gone:
		return ib.ErrClosed
	case w.busy <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-w.busy }()
	// If there is an event already, it costs neither a function for the end of ctx nor a deadline.
	if ok, err := take(); ok || err != nil {
		return err
	}

	fired := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		// A deadline in the past makes Read return at once.
		_ = w.file.SetReadDeadline(time.Unix(1, 0))
		close(fired)
	})
	var ok bool
	var err error
	// Read calls the function before it waits, and after each edge. So an event that has come since the take above is
	// not missed.
	waitErr := w.conn.Read(func(uintptr) bool {
		ok, err = take()
		return ok || err != nil
	})
	// If the function of AfterFunc has begun, its deadline must be taken away, or it would end the next wait.
	if !stop() {
		<-fired
		_ = w.file.SetReadDeadline(time.Time{})
	}
	switch {
	// What was taken counts, even if ctx has ended meanwhile: it cannot be put back.
	case ok || err != nil:
		return err
	case w.isClosed():
		return ib.ErrClosed
	case errors.Is(waitErr, os.ErrDeadlineExceeded):
		return ctx.Err()
	}
	return waitErr
}

func (w *waiter) isClosed() bool {
	select {
	case <-w.gone:
		return true
	default:
		return false
	}
}

// close ends all waits. When it returns, take is not running and will not be called again.
func (w *waiter) close() {
	w.once.Do(func() {
		close(w.gone)
		// Ends a Read that waits. Only the duplicate is closed.
		w.file.Close()
		// This waits for the last take. As it is never taken out, no other begins.
		w.busy <- struct{}{}
	})
}

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
// network poller watches a duplicate of it.
type waiter struct {
	file *os.File
	conn syscall.RawConn
	busy chan struct{} // full during a wait: there can be one at a time, as deadlines are per file
	gone chan struct{} // closed by close
	once sync.Once
}

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
func (w *waiter) wait(ctx context.Context, take func() (bool, error)) error {
	select {
	case <-w.gone:
		return ib.ErrClosed
	case w.busy <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-w.busy }()
	if ok, err := take(); ok || err != nil {
		return err
	}

	fired := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		_ = w.file.SetReadDeadline(time.Unix(1, 0))
		close(fired)
	})
	var ok bool
	var err error
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
		w.file.Close()
		// This waits for the last take. As it is never taken out, no other begins.
		w.busy <- struct{}{}
	})
}

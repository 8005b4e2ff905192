package server

import (
	"errors"
	"os"
	"slices"
	"sync"

	"golang.org/x/sys/unix"
)

// outbox sends short messages to a client without ever waiting for it: the shards use
// it. What the socket does not take now is kept, and leaves when it does.
type outbox struct {
	fd   int // of file, which is never set to block
	file *os.File

	mu      sync.Mutex
	owed    [][]byte
	sending bool // a goroutine is at it
	closed  bool
}

// owedMost bounds what is kept for a client that does not read; the events of armed
// CQs are never more than there are CQs.
const owedMost = 4096

// newOutbox returns an outbox, and the client's end of its socket, which is the
// caller's.
func newOutbox() (o *outbox, theirs int, err error) {
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, -1, os.NewSyscallError("socketpair", err)
	}
	if err := spare(ends[0]); err != nil {
		_ = unix.Close(ends[0])
		_ = unix.Close(ends[1])
		return nil, -1, err
	}
	// The client writes nothing there: descriptors that lie in a socket close with it, on the
	// thread that closes it.
	if err := unix.Shutdown(ends[0], unix.SHUT_RD); err != nil {
		_ = unix.Close(ends[0])
		_ = unix.Close(ends[1])
		return nil, -1, os.NewSyscallError("shutdown", err)
	}
	return &outbox{fd: ends[0], file: os.NewFile(uintptr(ends[0]), "events")}, ends[1], nil
}

// put sends a message, and reports false if it is lost.
func (o *outbox) put(message []byte) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case o.closed:
		return false
	case len(o.owed) == 0 && o.send(message) == nil:
		return true
	case len(o.owed) == owedMost:
		return false
	}
	o.owed = append(o.owed, slices.Clone(message))
	if !o.sending {
		o.sending = true
		go o.settle()
	}
	return true
}

func (o *outbox) send(message []byte) error {
	return unix.Sendto(o.fd, message, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL, nil)
}

// settle sends what is owed, as the client reads.
func (o *outbox) settle() {
	raw, err := o.file.SyscallConn()
	if err == nil {
		err = raw.Write(func(uintptr) bool {
			o.mu.Lock()
			defer o.mu.Unlock()
			for len(o.owed) > 0 {
				if err := o.send(o.owed[0]); errors.Is(err, unix.EAGAIN) {
					return false
				}
				o.owed = o.owed[1:] // if it was another error the client is gone
			}
			o.sending = false
			return true
		})
	}
	if err != nil { // it was closed
		o.mu.Lock()
		defer o.mu.Unlock()
		o.owed, o.sending = nil, false
	}
}

func (o *outbox) close() {
	o.mu.Lock()
	o.closed = true
	o.mu.Unlock()
	_ = o.file.Close()
}

package server

import (
	"errors"
	"os"
	"slices"
	"sync"

	"golang.org/x/sys/unix"
)

// outbox sends short messages to a client and never blocks, as the shards use it. Messages that
// the socket does not accept at once are queued, and sent when it does.
type outbox struct {
	fd   int // of file, which stays non-blocking
	file *os.File

	mu      sync.Mutex
	owed    [][]byte
	sending bool // a goroutine runs settle
	closed  bool
}

// owedMost bounds the messages queued for a client that does not read. There are never more
// events of armed CQs than there are CQs.
const owedMost = 4096

// newOutbox returns an outbox, and the client's end of its socket, which the caller closes.
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
	// Do not let the client write: descriptors queued in the socket would be closed with it, on
	// the thread that closes it, and that may block.
	if err := unix.Shutdown(ends[0], unix.SHUT_RD); err != nil {
		_ = unix.Close(ends[0])
		_ = unix.Close(ends[1])
		return nil, -1, os.NewSyscallError("shutdown", err)
	}
	return &outbox{fd: ends[0], file: os.NewFile(uintptr(ends[0]), "events")}, ends[1], nil
}

// put sends or queues a message. It returns false if the message is dropped.
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

// settle sends the queued messages as the client reads.
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
				o.owed = o.owed[1:] // after any other error the client has disconnected
			}
			o.sending = false
			return true
		})
	}
	if err != nil { // the socket was closed
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

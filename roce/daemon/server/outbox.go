package server

import (
	"errors"
	"os"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/goroce/goroce/roce/daemon/abi"
)

// outbox sends short messages to a client and never blocks, as the shards use it. Messages that
// the socket does not accept at once are queued, and sent when it does.
type outbox struct {
	file *abi.File

	mu      sync.Mutex
	owed    []string
	queued  map[string]struct{} // what owed has
	deleted int                 // entries of queued, for compact
	sending bool                // a goroutine runs settle
	closed  bool
}

// owedMost bounds the messages queued for a client that does not read. A message that is queued already is not queued
// again: it tells the client the same when the client reads it. An object that is closed takes its messages back. So
// there are never more than objects of the client, by their types.
const owedMost = 4096

// Kernel memory that a client which does not read makes its messages occupy: the socket's buffer, which the kernel
// doubles for its own needs, and what messages beyond it cost the daemon: a goroutine.
const (
	outboxBuffer = 4 << 10
	outboxHeap   = 2*outboxBuffer + 8<<10
)

// newOutbox returns an outbox for the client at the other end of c, and the client's end of its socket, which the
// caller closes.
func newOutbox(c *abi.Conn) (o *outbox, theirs int, err error) {
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, -1, os.NewSyscallError("socketpair", err)
	}
	if err := prepareOutbox(ends[0]); err != nil {
		_ = unix.Close(ends[0])
		_ = unix.Close(ends[1])
		return nil, -1, err
	}
	return &outbox{file: c.NewFile(ends[0], "events")}, ends[1], nil
}

// prepareOutbox limits the buffer of a socket, and does not let the client write: descriptors queued in the socket
// would be closed with it, on the thread that closes it, and that may block.
func prepareOutbox(fd int) error {
	if err := spare(fd); err != nil {
		return err
	}
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUF, outboxBuffer); err != nil {
		return os.NewSyscallError("setsockopt SO_SNDBUF", err)
	}
	return os.NewSyscallError("shutdown", unix.Shutdown(fd, unix.SHUT_RD))
}

// put sends or queues a message. It returns false if the message is dropped, or is queued already.
func (o *outbox) put(message []byte) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case o.closed:
		return false
	case len(o.owed) == 0 && o.file.TrySend(message) == nil:
		return true
	case len(o.owed) == owedMost:
		return false
	}
	if _, ok := o.queued[string(message)]; ok {
		return false
	}
	if o.queued == nil {
		o.queued = map[string]struct{}{}
	}
	o.queued[string(message)] = struct{}{}
	o.owed = append(o.owed, string(message))
	if !o.sending {
		o.sending = true
		go o.settle()
	}
	return true
}

// retract takes back a message that is queued. It returns false if there is none, or it was sent.
func (o *outbox) retract(message []byte) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if _, ok := o.queued[string(message)]; !ok {
		return false
	}
	o.owed = slices.DeleteFunc(o.owed, func(m string) bool { return m == string(message) })
	o.unqueue(string(message))
	return true
}

// unqueue notes that owed no longer has a message. The caller holds mu.
func (o *outbox) unqueue(message string) {
	delete(o.queued, message)
	if o.queued = compact(o.queued, &o.deleted); o.deleted == 0 {
		o.owed = slices.Clone(o.owed)
	}
}

// settle sends the queued messages as the client reads.
func (o *outbox) settle() {
	err := o.file.AwaitWrite(func(uintptr) bool {
		o.mu.Lock()
		defer o.mu.Unlock()
		for len(o.owed) > 0 {
			if err := o.file.TrySend([]byte(o.owed[0])); errors.Is(err, unix.EAGAIN) {
				return false
			}
			sent := o.owed[0] // or lost: after any other error the client has disconnected
			o.owed = o.owed[1:]
			o.unqueue(sent)
		}
		o.owed, o.queued, o.sending = nil, nil, false
		return true
	})
	if err != nil { // the socket was closed
		o.mu.Lock()
		defer o.mu.Unlock()
		o.owed, o.queued, o.sending = nil, nil, false
	}
}

func (o *outbox) close() {
	o.mu.Lock()
	o.closed = true
	o.mu.Unlock()
	_ = o.file.Close()
}

package server

import (
	"errors"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/goroce/goroce/roce/daemon/abi"
)

// outbox sends short messages to a client and never blocks, as the shards use it. Messages that
// the socket does not accept at once are queued, and sent when it does.
//
// What is queued has no bound of its own. A note that is queued already is not queued again: it tells the client the
// same when the client reads it. Notes are the session's or an object's, with which they are booked, and an object that
// is closed takes its own back.
type outbox struct {
	file *abi.File

	// Shards take it under their lock: TrySend, which does not block, is all that is done with it held.
	mu          sync.Mutex
	first, last *note // the queue
	sending     bool  // a goroutine runs settle
	closed      bool
}

// note is a message of an outbox. All but the message is guarded by the outbox's mu.
type note struct {
	message        string
	queued         bool
	earlier, later *note
}

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

// put sends or queues a note. It returns false if the note is dropped, or is queued already.
func (o *outbox) put(n *note) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case o.closed || n.queued:
		return false
	// Only if nothing waits, so that messages keep their order.
	case o.first == nil && o.file.TrySend([]byte(n.message)) == nil:
		return true
	// It could not be sent at once. Any error but EAGAIN is left to settle, too, which drops the note.
	case o.first == nil:
		o.first = n
	default:
		o.last.later, n.earlier = n, o.last
	}
	o.last, n.queued = n, true
	if !o.sending {
		o.sending = true
		// At most one for each outbox, whose memory the session has booked (outboxHeap).
		go o.settle()
	}
	return true
}

// retract takes back a note that is queued. It returns false if it is not, or was sent.
func (o *outbox) retract(n *note) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !n.queued {
		return false
	}
	o.unlink(n)
	return true
}

// unlink takes a note out of the queue. The caller holds mu.
func (o *outbox) unlink(n *note) {
	if n.earlier != nil {
		n.earlier.later = n.later
	} else {
		o.first = n.later
	}
	if n.later != nil {
		n.later.earlier = n.earlier
	} else {
		o.last = n.earlier
	}
	n.earlier, n.later, n.queued = nil, nil, false
}

// settle sends the queued notes as the client reads. It runs on a goroutine of its own, and ends when the queue is
// empty or the outbox is closed: a client that does not read keeps one for each of its outboxes.
func (o *outbox) settle() {
	err := o.file.AwaitWrite(func(uintptr) bool {
		o.mu.Lock()
		defer o.mu.Unlock()
		for o.first != nil {
			if err := o.file.TrySend([]byte(o.first.message)); errors.Is(err, unix.EAGAIN) {
				return false
			}
			o.unlink(o.first) // sent, or lost: after any other error the client has disconnected
		}
		o.sending = false
		return true
	})
	if err != nil { // the socket was closed
		o.mu.Lock()
		defer o.mu.Unlock()
		for o.first != nil {
			o.unlink(o.first)
		}
		o.sending = false
	}
}

// close ends the outbox: notes that wait are dropped, and later ones are, too. It may be called again.
func (o *outbox) close() {
	o.mu.Lock()
	o.closed = true
	o.mu.Unlock()
	// Without mu: AwaitWrite of settle ends by it, and then takes mu.
	_ = o.file.Close()
}

package sock

import (
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/goroce/goroce/roce/link"
	"golang.org/x/sys/unix"
)

// Poller waits until sockets are ready, or until it is woken. One goroutine calls Wait; any may call the other methods.
type Poller struct {
	fds    []unix.PollFd // the eventfd, the sockets, the receivers; used by Wait
	socks  int           // number of sockets in fds
	failed bool          // a socket has an error; set by Wait
	awake  atomic.Bool   // the eventfd is readable, or will be in a moment
	closed atomic.Bool

	mu        sync.Mutex // guards the fields below
	event     int        // -1 after Close
	sockets   []int
	receivers []int
	changes   uint64     // counts changes of sockets and receivers
	loaded    uint64     // changes when fds was last updated
	polling   bool       // Wait is in the kernel with fds
	polled    *sync.Cond // signaled when polling becomes false
}

// NewPoller returns a Poller over the sockets, which stay the caller's.
func NewPoller(socks []int) (*Poller, error) {
	event, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, os.NewSyscallError("eventfd", err)
	}
	p := &Poller{event: event, sockets: slices.Clone(socks),
		fds: []unix.PollFd{{Fd: int32(event), Events: unix.POLLIN}}, changes: 1}
	p.polled = sync.NewCond(&p.mu)
	return p, nil
}

// AddSocket adds a socket that is used to receive and to send. It counts as a Wake.
func (p *Poller) AddSocket(fd int) { p.change(func() { p.sockets = append(p.sockets, fd) }) }

// Add adds a descriptor to be waited for until it is readable: a socket that is only used to receive, or any other. It
// counts as a Wake.
func (p *Poller) Add(receiver int) { p.change(func() { p.receivers = append(p.receivers, receiver) }) }

// Remove removes a descriptor. No Wait uses it after Remove has returned, so its address is free once the caller has
// closed it. It counts as a Wake.
func (p *Poller) Remove(fd int) {
	same := func(other int) bool { return other == fd }
	p.change(func() {
		p.sockets = slices.DeleteFunc(p.sockets, same)
		p.receivers = slices.DeleteFunc(p.receivers, same)
	})
	p.mu.Lock()
	defer p.mu.Unlock()
	for change := p.changes; p.polling && p.loaded < change; {
		p.polled.Wait()
	}
}

func (p *Poller) change(f func()) {
	p.mu.Lock()
	f()
	p.changes++
	p.mu.Unlock()
	p.Wake()
}

// begin updates fds before the kernel uses it.
func (p *Poller) begin() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.polling = true
	if p.loaded == p.changes {
		return
	}
	p.loaded = p.changes
	p.fds = p.fds[:1]
	p.socks = len(p.sockets)
	for _, fd := range p.sockets {
		p.fds = append(p.fds, unix.PollFd{Fd: int32(fd)})
	}
	for _, fd := range p.receivers {
		p.fds = append(p.fds, unix.PollFd{Fd: int32(fd), Events: unix.POLLIN})
	}
}

// Wait waits until a socket is readable, or writable if that is set, until Wake, or for at most d (no limit if
// negative).
func (p *Poller) Wait(d time.Duration, writable bool) error {
	if p.closed.Load() {
		return link.ErrClosed
	}
	p.begin()
	events := int16(unix.POLLIN)
	if writable {
		events |= unix.POLLOUT
	}
	for i := range p.socks {
		p.fds[1+i].Events = events
	}
	n, err := poll(p.fds, d)
	p.failed = false
	for i := range p.fds[1 : 1+p.socks] {
		p.failed = p.failed || p.fds[1+i].Revents&unix.POLLERR != 0
	}
	p.end()
	if err != nil {
		return err
	}
	if n > 0 && p.fds[0].Revents != 0 {
		p.drain()
	}
	if p.closed.Load() {
		return link.ErrClosed
	}
	return nil
}

// Failed reports whether a socket had an error at the end of the last Wait, in its error queue or pending. Wait does
// not block until the owner has read it.
func (p *Poller) Failed() bool { return p.failed }

func (p *Poller) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.polling = false
	p.polled.Broadcast()
}

// drain clears the eventfd. A Wake between the read and the Swap does not write, but this Wait returns anyway.
func (p *Poller) drain() {
	var count [8]byte
	_, _ = unix.Read(p.event, count[:])
	p.awake.Swap(false)
}

// Wake ends a Wait that is under way, or the next one.
func (p *Poller) Wake() {
	if p.awake.Swap(true) {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.event >= 0 {
		one := [8]byte{1}
		_, _ = unix.Write(p.event, one[:])
	}
}

// Shut makes this and every later Wait return link.ErrClosed.
func (p *Poller) Shut() {
	p.closed.Store(true)
	p.Wake()
}

// Close frees the Poller. No Wait may be running: call Shut first.
func (p *Poller) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.event >= 0 {
		_ = unix.Close(p.event)
		p.event = -1
	}
}

// Writable waits until fd accepts data, for at most d.
func Writable(fd int, d time.Duration) bool {
	fds := [1]unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}
	n, err := poll(fds[:], d)
	return err == nil && n > 0
}

// poll calls ppoll, which has nanoseconds. It goes on after signals, which the Go runtime sends to threads that it
// preempts.
func poll(fds []unix.PollFd, d time.Duration) (int, error) {
	var end time.Time
	if d > 0 {
		end = time.Now().Add(d)
	}
	for {
		var timeout *unix.Timespec
		if d >= 0 {
			ts := unix.NsecToTimespec(int64(d))
			timeout = &ts
		}
		n, err := unix.Ppoll(fds, timeout, nil)
		if err != unix.EINTR {
			return n, os.NewSyscallError("ppoll", err)
		}
		if d > 0 {
			d = max(time.Until(end), 0)
		}
	}
}

package server

import (
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/qp/ring"
	"github.com/goroce/goroce/roce"
	"github.com/goroce/goroce/roce/daemon/internal/yield"
)

// clientDoorbells are those of one client on one shard.
type clientDoorbells struct {
	ring *ring.Doorbells
	qps  []atomic.Pointer[roce.QP] // by doorbell
	free []uint32                  // the session's
	wake int                       // eventfd, which the client writes to and the daemon never reads

	fault func() // ends the session; it does not block

	// Guarded by doorbells.mu.
	active bool
	quiet  ib.Instant // since when nothing has rung
}

// perShard is how many QPs a client may have on one shard.
const perShard = 4096

func newClientDoorbells(buf []byte) (*clientDoorbells, error) {
	r, err := ring.NewDoorbells(buf, perShard)
	if err != nil {
		return nil, err
	}
	wake, err := unix.Eventfd(1, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, os.NewSyscallError("eventfd", err)
	}
	if err := spare(wake); err != nil {
		_ = unix.Close(wake)
		return nil, err
	}
	b := &clientDoorbells{ring: r, qps: make([]atomic.Pointer[roce.QP], perShard), wake: wake}
	for i := range uint32(perShard) {
		b.free = append(b.free, perShard-1-i)
	}
	return b, nil
}

// doorbells is all clients' doorbells on one shard (roce.Doorbells).
//
// A turn of the shard looks at the doorbells of active clients only. A client that has not
// rung for idleAfter is told, in its memory, that the shard sleeps: when it rings next, it
// writes its eventfd, as it does when the shard really sleeps. The kernel keeps the list of
// eventfds that were written to (epoll); the shard asks for it when it wakes, and now and
// then while it is busy. So idle clients cost a busy one nothing, however many there are.
type doorbells struct {
	epoll   int           // readable when a client wakes the shard
	yielder yield.Yielder // the shard's

	mu     sync.Mutex
	all    map[int32]*clientDoorbells // by eventfd
	active []*clientDoorbells
	hand   *clientDoorbells // whose memory is being touched
	asked  ib.Instant       // when the kernel was asked for the list
	woken  []unix.EpollEvent
	edges  []unix.EpollEvent // of woken: those that were not looked at yet
}

const (
	// idleAfter is how long a client rings no doorbell before it is idle.
	idleAfter = ib.Instant(10 * time.Millisecond)
	// askAfter is how long a client that was idle waits at most for a shard that is busy.
	// To ask is a system call of some 200 ns.
	askAfter = ib.Instant(50 * time.Microsecond)
)

func newDoorbells() (*doorbells, error) {
	epoll, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("epoll_create1", err)
	}
	return &doorbells{epoll: epoll, all: map[int32]*clientDoorbells{}, woken: make([]unix.EpollEvent, 64)}, nil
}

// add begins to listen to b, as an idle client's. That its eventfd has been written to
// already makes the shard look, should it sleep. Edges are what counts: the descriptor is
// the client's too, and must never be read or blocked on.
func (t *doorbells) add(b *clientDoorbells) error {
	t.mu.Lock()
	b.ring.Sleep()
	t.all[int32(b.wake)] = b
	t.mu.Unlock()
	event := unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLET, Fd: int32(b.wake)}
	return os.NewSyscallError("epoll_ctl", unix.EpollCtl(t.epoll, unix.EPOLL_CTL_ADD, b.wake, &event))
}

// remove ends that. When it returns nothing looks at b any more.
func (t *doorbells) remove(b *clientDoorbells) {
	_ = unix.EpollCtl(t.epoll, unix.EPOLL_CTL_DEL, b.wake, nil)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.forget(b)
}

// forget is the part of remove under mu. Those that are not active may be in the list after a
// fault, which has ended Take in the middle.
func (t *doorbells) forget(b *clientDoorbells) {
	delete(t.all, int32(b.wake))
	t.active = slices.DeleteFunc(t.active, func(c *clientDoorbells) bool { return c == b || !c.active })
}

// Take calls rung for each QP whose doorbell has rung.
func (t *doorbells) Take(now ib.Instant, rung func(*roce.QP)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.active) < len(t.all) && now-t.asked >= askAfter {
		t.asked = now
		t.activate(now)
	}
	idle := false
	for _, b := range t.active {
		t.hand = b
		any := b.ring.Take(func(i uint32) {
			if q := b.qps[i].Load(); q != nil {
				rung(q)
			}
		})
		switch {
		case any:
			b.quiet = now
		case now-b.quiet >= idleAfter:
			b.active = b.ring.Sleep() // or it has rung this moment
			idle = idle || !b.active
			b.quiet = now
		}
	}
	t.hand = nil
	if idle {
		t.active = slices.DeleteFunc(t.active, func(b *clientDoorbells) bool { return !b.active })
	}
}

// activate makes those clients active whose eventfds were written to.
func (t *doorbells) activate(now ib.Instant) {
	if len(t.edges) == 0 {
		n, _ := unix.EpollWait(t.epoll, t.woken, 0) // edges that are seen are gone
		t.edges = t.woken[:max(n, 0)]
	}
	for len(t.edges) > 0 {
		b := t.all[t.edges[0].Fd]
		t.edges = t.edges[1:] // before b is touched: a fault there shall not lose the others
		if b == nil || b.active {
			continue
		}
		t.hand = b
		b.ring.Awake()
		b.active, b.quiet = true, now
		t.active = append(t.active, b)
	}
	t.hand = nil
}

// Faulted ends the use of the doorbells that were touched last, whose memory is not there.
func (t *doorbells) Faulted() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	b := t.hand
	if b == nil {
		return false
	}
	t.hand = nil
	t.forget(b)
	b.fault()
	return true
}

// GiveWay lets another process have the processor.
func (t *doorbells) GiveWay() bool { return t.yielder.Yield() }

// Sleep tells all active clients that the shard must be woken; the others know.
func (t *doorbells) Sleep() (rung bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	rung = len(t.edges) > 0
	for _, b := range t.active {
		t.hand = b
		rung = b.ring.Sleep() || rung
	}
	t.hand = nil
	return rung
}

// Awake takes that back.
func (t *doorbells) Awake(now ib.Instant) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, b := range t.active {
		t.hand = b
		b.ring.Awake()
	}
	t.activate(now)
}

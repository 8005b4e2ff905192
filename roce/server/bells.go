package server

import (
	"os"
	"slices"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/goroce/goroce/qp/ring"
	"github.com/goroce/goroce/roce"
	"github.com/goroce/goroce/roce/yield"
)

// bells are one client's doorbells on one shard.
type bells struct {
	ring *ring.Bells
	qps  []atomic.Pointer[roce.QP] // by bell
	free []uint32                  // the session's
	wake int                       // eventfd, which the client writes to and the daemon never reads
}

// perShard is how many QPs a client may have on one shard.
const perShard = 4096

func newBells(buf []byte) (*bells, error) {
	r, err := ring.NewBells(buf, perShard)
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
	b := &bells{ring: r, qps: make([]atomic.Pointer[roce.QP], perShard), wake: wake}
	for i := range uint32(perShard) {
		b.free = append(b.free, perShard-1-i)
	}
	return b, nil
}

// tower is all clients' doorbells on one shard (roce.Bells). Its epoll instance is
// readable when one of them wakes the shard.
type tower struct {
	epoll   int
	yielder yield.Yielder // the shard's

	mu      sync.Mutex
	clients []*bells
	woken   []unix.EpollEvent
}

func newTower() (*tower, error) {
	epoll, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("epoll_create1", err)
	}
	return &tower{epoll: epoll, woken: make([]unix.EpollEvent, 64)}, nil
}

// add begins to listen to b. That its eventfd has been written to already makes the
// shard look, should it sleep. Edges are what counts: the descriptor is the client's
// too, and must never be read or blocked on.
func (t *tower) add(b *bells) error {
	t.mu.Lock()
	t.clients = append(t.clients, b)
	t.mu.Unlock()
	event := unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLET}
	return os.NewSyscallError("epoll_ctl", unix.EpollCtl(t.epoll, unix.EPOLL_CTL_ADD, b.wake, &event))
}

// remove ends that. When it returns nothing looks at b any more.
func (t *tower) remove(b *bells) {
	_ = unix.EpollCtl(t.epoll, unix.EPOLL_CTL_DEL, b.wake, nil)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.clients = slices.DeleteFunc(t.clients, func(c *bells) bool { return c == b })
}

// Take calls rung for each QP whose bell has rung.
func (t *tower) Take(rung func(*roce.QP)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, b := range t.clients {
		b.ring.Take(func(i uint32) {
			if q := b.qps[i].Load(); q != nil {
				rung(q)
			}
		})
	}
}

// GiveWay lets another process have the processor.
func (t *tower) GiveWay() bool { return t.yielder.Yield() }

// Sleep tells all clients that the shard must be woken.
func (t *tower) Sleep() (rung bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, b := range t.clients {
		rung = b.ring.Sleep() || rung
	}
	return rung
}

// Awake takes that back.
func (t *tower) Awake() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, b := range t.clients {
		b.ring.Awake()
	}
	_, _ = unix.EpollWait(t.epoll, t.woken, 0) // edges that are seen are gone
}

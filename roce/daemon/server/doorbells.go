package server

import (
	"cmp"
	"fmt"
	"math/bits"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/ib/driver"
	"github.com/goroce/goroce/qp/ring"
	"github.com/goroce/goroce/roce/daemon/abi"
	"github.com/goroce/goroce/roce/daemon/internal/yield"
	"github.com/goroce/goroce/roce/internal/device"
	"github.com/goroce/goroce/roce/internal/engine"
)

// clientDoorbells are the doorbells of one client on one shard. The client can set any bit at any time, of a doorbell
// without a QP, too, so the shard looks up each by atomic loads, and what it finds is a QP of this client or none.
type clientDoorbells struct {
	ring *ring.Doorbells
	qps  [perShard / bellBlock]atomic.Pointer[bells]
	made uint32   // doorbells in qps; this and free are used by the session's goroutine only
	free []uint32 // doorbells without a QP
	wake int      // eventfd, which the client writes to and the daemon never reads

	fault func() // ends the session; does not block

	// Guarded by doorbells.mu.
	active bool
	quiet  ib.Instant // when a doorbell was last seen rung
}

// perShard is how many QPs a client may have on one shard. Tables are made for bellBlock of them at a time.
const (
	perShard  = 1 << 14
	bellBlock = 1 << 12
)

// bells are the QPs of a block of doorbells.
type bells struct {
	qps [bellBlock]atomic.Pointer[engine.QP]
	// assigned are the doorbells that have a QP. The client may set all others, too, again and again: they must not
	// cost a look each.
	assigned [bellBlock / 64]atomic.Uint64
}

// set makes a doorbell, whose block is made, that of a QP, or of none. The stores are atomic, since the shard may take
// a ring of this doorbell, which a client may write at will, at this moment.
func (b *clientDoorbells) set(doorbell uint32, q *engine.QP) {
	block, i := b.qps[doorbell/bellBlock].Load(), doorbell%bellBlock
	block.qps[i].Store(q)
	if bit := uint64(1) << (i % 64); q != nil {
		block.assigned[i/64].Or(bit)
	} else {
		block.assigned[i/64].And(^bit)
	}
}

// rung calls ring for the QPs of the doorbells from first on that are set.
func (b *clientDoorbells) rung(first uint32, set uint64, ring func(*engine.QP)) {
	block, i := b.qps[first/bellBlock].Load(), first%bellBlock
	if block == nil {
		return
	}
	for set &= block.assigned[i/64].Load(); set != 0; set &= set - 1 {
		if q := block.qps[i+uint32(bits.TrailingZeros64(set))].Load(); q != nil {
			ring(q)
		}
	}
}

// grow makes the next block of doorbells, unless there are perShard.
func (b *clientDoorbells) grow() {
	if b.made == perShard {
		return
	}
	b.qps[b.made/bellBlock].Store(new(bells))
	b.made += bellBlock
	for i := range uint32(bellBlock) {
		b.free = append(b.free, b.made-1-i)
	}
}

// assign assigns a doorbell of a shard to a new QP.
func (c *session) assign(op abi.Op, q *device.QP) (doorbell uint32, err error) {
	b := c.doorbells[q.Shard()]
	if len(b.free) == 0 && b.made < perShard {
		// For the session, not the QP: blocks stay when QPs go.
		if err := c.book(op, heap, bellsHeap); err != nil {
			return 0, err
		}
		c.booked = append(c.booked, held{heap, bellsHeap})
		b.grow()
	}
	if len(b.free) == 0 {
		return 0, driver.Refuse(op.String(), "QPs of one client on a shard", perShard+1,
			fmt.Sprintf("%d; another connection may have as many", perShard), ib.ErrLimit)
	}
	doorbell = b.free[len(b.free)-1]
	b.free = b.free[:len(b.free)-1]
	b.set(doorbell, q.Part())
	return doorbell, nil
}

// unassign undoes assign. A bit that is set already may ring the next QP of the doorbell, which then has no work.
func (c *session) unassign(q *device.QP, doorbell uint32) {
	b := c.doorbells[q.Shard()]
	b.set(doorbell, nil)
	b.free = append(b.free, doorbell)
}

// newClientDoorbells formats doorbells in memory that was mapped, and sealed, for a shard. The descriptor wake stays
// open here as long as they do, since the epoll set and doorbells.all know it by its number.
func newClientDoorbells(buf []byte) (*clientDoorbells, error) {
	r, err := ring.NewDoorbells(buf, perShard)
	if err != nil {
		return nil, err
	}
	// It begins at 1, readable, so that add wakes the shard.
	wake, err := unix.Eventfd(1, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, os.NewSyscallError("eventfd", err)
	}
	if err := spare(wake); err != nil {
		_ = unix.Close(wake)
		return nil, err
	}
	b := &clientDoorbells{ring: r, wake: wake}
	b.grow()
	return b, nil
}

// shareDoorbells maps the session's doorbells and adds them to those of each shard. The reply carries an eventfd for
// each shard.
func shareDoorbells(c *session, _ []byte, fds []int) (r reply, err error) {
	const op = abi.OpShareDoorbells
	if c.shared != nil {
		return noBody(fmt.Errorf("%v: the connection has doorbells already: %w", op, ib.ErrState))
	}
	shards := int64(len(c.unit.doorbells))
	err = cmp.Or(c.take(op, mappings, 1), c.take(op, descriptors, shards), c.take(op, heap, shards*sessionShardHeap))
	if err != nil {
		return noBody(err)
	}
	if err := c.addDoorbells(fds); err != nil {
		// Before the memory is unmapped: shards look at those that were added.
		c.closeDoorbells()
		c.shared.free()
		c.shared = nil
		return noBody(err)
	}
	c.booked, c.pending = append(c.booked, c.pending...), nil
	for _, b := range c.doorbells {
		r.fds = append(r.fds, b.wake)
	}
	return r, nil
}

// addDoorbells maps the memory and adds the doorbells to the shards, one after the other. On an error the caller
// undoes what was done.
func (c *session) addDoorbells(fds []int) (err error) {
	size := ring.DoorbellsSize(perShard)
	all := uint64(size * len(c.unit.doorbells))
	if c.shared, err = c.mapShared(abi.OpShareDoorbells, fds, all, all); err != nil {
		return err
	}
	for i, t := range c.unit.doorbells {
		b, err := newClientDoorbells(c.shared.buf[i*size : (i+1)*size])
		if err != nil {
			return err
		}
		at := uintptr(unsafe.Pointer(&c.shared.buf[i*size]))
		b.fault = func() { c.Fault(at) }
		// Before add: should that fail, closeDoorbells removes these doorbells, too, and closes their descriptor.
		c.doorbells = append(c.doorbells, b)
		if err := t.add(b); err != nil {
			return err
		}
	}
	return nil
}

// doorbells holds all clients' doorbells on one shard (engine.Doorbells).
//
// A turn of the shard polls the doorbells of active clients only. For a client that has not
// rung for idleAfter, the shard marks itself asleep in that client's shared memory. The client's
// next ring then writes its eventfd, as if the shard really slept. The kernel keeps the list of
// eventfds that were written (epoll); the shard asks for it when it wakes, and every askAfter
// while it is busy. So idle clients, however many, add no work to a turn.
type doorbells struct {
	epoll   int           // readable when a client wakes the shard
	yielder yield.Yielder // the shard's

	// A turn takes mu with the shard's lock held, the loop (Sleep, Awake) without it, and sessions to add and remove
	// theirs. Memory of clients is touched under it: a fault there panics out of the method, which releases mu, and
	// Faulted follows.
	mu      sync.Mutex
	all     map[int32]*clientDoorbells // by eventfd
	active  []*clientDoorbells
	current *clientDoorbells // those of the client being handled; nil if none; for Faulted
	asked   ib.Instant       // time of the latest epoll_wait(2)
	woken   []unix.EpollEvent
	edges   []unix.EpollEvent // the part of woken that activate has not handled yet
}

const (
	// idleAfter is how long a client rings no doorbell before it counts as idle.
	idleAfter = ib.Instant(10 * time.Millisecond)
	// askAfter is how long the first ring of an idle client waits at most for a busy shard.
	// epoll_wait(2) takes some 200 ns.
	askAfter = ib.Instant(50 * time.Microsecond)
)

func newDoorbells() (*doorbells, error) {
	epoll, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("epoll_create1", err)
	}
	return &doorbells{epoll: epoll, all: map[int32]*clientDoorbells{}, woken: make([]unix.EpollEvent, 64)}, nil
}

// add adds the doorbells of a new client, as idle. Their eventfd is already readable, so a
// sleeping shard wakes and polls them. The events are edge-triggered: the client has the
// descriptor too, so the daemon must never read it or block on it.
func (t *doorbells) add(b *clientDoorbells) error {
	t.list(b)
	event := unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLET, Fd: int32(b.wake)}
	return os.NewSyscallError("epoll_ctl", unix.EpollCtl(t.epoll, unix.EPOLL_CTL_ADD, b.wake, &event))
}

// list lists new doorbells. A fault in their memory panics out of it, and releases mu.
func (t *doorbells) list(b *clientDoorbells) {
	t.mu.Lock()
	defer t.mu.Unlock()
	b.ring.Sleep()
	t.all[int32(b.wake)] = b
}

// remove undoes add. When it returns the shard does not access b any more. Closing the eventfd would not take it out
// of the epoll set: the client has a copy of the descriptor, which keeps the file, and so its entry.
func (t *doorbells) remove(b *clientDoorbells) {
	_ = unix.EpollCtl(t.epoll, unix.EPOLL_CTL_DEL, b.wake, nil)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.forget(b)
}

// forget is the part of remove under mu. It also deletes inactive entries of t.active: a fault
// may have ended Take before it did.
func (t *doorbells) forget(b *clientDoorbells) {
	delete(t.all, int32(b.wake))
	t.active = slices.DeleteFunc(t.active, func(c *clientDoorbells) bool { return c == b || !c.active })
}

// Take calls ring for each QP whose doorbell has rung. The shard calls it once a turn, under its lock. It puts QPs on
// a list and does nothing for them: how many of those a turn serves, and of which client first, is the engine's
// affair (engine.Shard.takeDoorbells).
func (t *doorbells) Take(now ib.Instant, ring func(*engine.QP)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	// With all clients active nothing can be in the epoll set that this turn does not see.
	if len(t.active) < len(t.all) && now-t.asked >= askAfter {
		t.asked = now
		t.activate(now)
	}
	idle := false
	for _, b := range t.active {
		t.current = b
		// Whatever the client has written there, first is below perShard: the worst is a ring for a QP of its own
		// that has no work.
		any := b.ring.Take(func(first uint32, set uint64) { b.rung(first, set, ring) })
		switch {
		case any:
			b.quiet = now
		case now-b.quiet >= idleAfter:
			// Sleep marks first and looks again then, so that a ring between the two is not lost.
			b.active = b.ring.Sleep() // true if the client has just rung
			idle = idle || !b.active
			b.quiet = now
		}
	}
	t.current = nil
	if idle {
		t.active = slices.DeleteFunc(t.active, func(b *clientDoorbells) bool { return !b.active })
	}
}

// activate makes the clients active whose eventfds were written. The caller holds mu. A number that was removed
// meanwhile is skipped. If it is another client's by now, that one is polled for idleAfter, and found idle.
func (t *doorbells) activate(now ib.Instant) {
	if len(t.edges) == 0 {
		n, _ := unix.EpollWait(t.epoll, t.woken, 0) // the kernel reports an edge once
		t.edges = t.woken[:max(n, 0)]
	}
	for len(t.edges) > 0 {
		b := t.all[t.edges[0].Fd]
		t.edges = t.edges[1:] // before b is accessed: a fault must not lose the remaining edges
		if b == nil || b.active {
			continue
		}
		t.current = b
		b.ring.Awake()
		b.active, b.quiet = true, now
		t.active = append(t.active, b)
	}
	t.current = nil
}

// Faulted removes the doorbells whose access has faulted, and ends their session. It returns
// false if no doorbells were being accessed.
func (t *doorbells) Faulted() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	b := t.current
	if b == nil {
		return false
	}
	t.current = nil
	t.forget(b)
	// Under mu, so it only starts a goroutine (session.Fault).
	b.fault()
	return true
}

// GiveWay yields the processor to another process. The loop calls it while it spins: clients that are about to ring
// may wait for this processor.
func (t *doorbells) GiveWay() bool { return t.yielder.Yield() }

// Sleep marks the shard asleep for all active clients; for idle ones it is marked so already. It returns true if
// there are doorbells to take first. The loop calls it before it waits, without the shard's lock. A client that rings
// from then on writes its eventfd; one that has rung before is found here: so no ring is lost.
func (t *doorbells) Sleep() (rung bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	rung = len(t.edges) > 0
	for _, b := range t.active {
		t.current = b
		rung = b.ring.Sleep() || rung
	}
	t.current = nil
	return rung
}

// Awake undoes Sleep, and activates the clients that have written their eventfds.
func (t *doorbells) Awake(now ib.Instant) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, b := range t.active {
		t.current = b
		b.ring.Awake()
	}
	// The shard was asleep: the eventfd that has ended its sleep is among these.
	t.activate(now)
}

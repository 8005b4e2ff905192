package qp

import (
	"sync"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/qp/ring"
)

// CQ is the device's end of a completion queue. QPs of one shard write to it, or QPs
// of several shards if it has a lock.
type CQ struct {
	lock    sync.Locker // nil with one shard
	ring    *ring.CQ
	overrun bool // a completion was lost: no more are accepted
	notify  bool // the event of an armed CQ is pending
	errored bool // EventCQErr is pending

	// Owner is for the engine that holds the CQ.
	Owner any

	listed  bool // in the Due of some shard
	nextDue *CQ
}

// NewCQ returns a CQ that writes to a ring. If lock is not nil it guards the CQ,
// so that QPs of several shards may write to it.
func NewCQ(r *ring.CQ, lock sync.Locker) *CQ { return &CQ{lock: lock, ring: r} }

// Entries returns the capacity.
func (c *CQ) Entries() int {
	acquire(c.lock)
	defer release(c.lock)
	return c.ring.Entries()
}

// MoveMost is how many entries a step of a resize moves.
const MoveMost = 1024

// Resize moves the completions to another ring. The caller calls step until it is done; in between others may have the
// CQ. From then on the CQ uses that ring or, if the completions do not fit, the one from before. The application must
// not use the queue meanwhile.
func (c *CQ) Resize(r *ring.CQ) (step func() (moved int, done, fits bool)) {
	return resize(c.lock, func() *ring.Move { return c.ring.MoveTo(r) }, func() { c.ring = r })
}

// resize returns the steps that move the entries of a queue with that lock. begin begins to move them; use has the
// queue use the other ring.
func resize(lock sync.Locker, begin func() *ring.Move, use func()) (step func() (moved int, done, fits bool)) {
	var m *ring.Move
	return func() (moved int, done, fits bool) {
		acquire(lock)
		defer release(lock)
		if m == nil {
			m = begin()
		}
		if moved, done, fits = m.Step(MoveMost); done && fits {
			use()
		}
		return moved, done, fits
	}
}

// push adds a completion. If that raises an event, the CQ is listed in due, unless due
// is nil. When the queue is full, push returns false, and the CQ accepts no completion
// from then on (IBTA 10.2.3, CQ overrun): an application that has lost one completion
// cannot know which of its requests are complete.
func (c *CQ) push(wc *ib.WC, solicited bool, due *Due) bool {
	if c.lock == nil {
		return c.put(wc, solicited, due)
	}
	c.lock.Lock()
	defer c.lock.Unlock()
	return c.put(wc, solicited, due)
}

func (c *CQ) put(wc *ib.WC, solicited bool, due *Due) bool {
	if c.overrun {
		return false
	}
	if !c.ring.Push(wc) {
		c.overrun, c.errored = true, true
		due.addCQ(c)
		return false
	}
	if c.ring.TakeArm(solicited || wc.Status != ib.WCSuccess) {
		c.notify = true
		due.addCQ(c)
	}
	return true
}

// TakeNotify reports whether the event of an armed CQ is pending, and clears it.
func (c *CQ) TakeNotify() bool {
	acquire(c.lock)
	defer release(c.lock)
	due := c.notify
	c.notify = false
	return due
}

// TakeError reports whether EventCQErr is pending for an overrun, and clears it.
func (c *CQ) TakeError() bool {
	acquire(c.lock)
	defer release(c.lock)
	due := c.errored
	c.errored = false
	return due
}

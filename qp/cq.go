package qp

import (
	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/qp/ring"
)

// CQ is the device's end of a completion queue. It belongs to the shard whose
// QPs write to it.
type CQ struct {
	ring    *ring.CQ
	overrun bool // dead: entries were lost
	notify  bool // an armed event is due
	errored bool // the overrun event is due

	// Owner is for the engine that holds the CQ.
	Owner any
}

// NewCQ returns a CQ that writes to a ring.
func NewCQ(r *ring.CQ) *CQ { return &CQ{ring: r} }

// push adds a completion. When the queue is full the completion is lost, the CQ
// is dead and stays so (IBTA 10.2.3, CQ overrun): an application that
// lost one completion cannot trust its bookkeeping any more. It returns false
// then.
func (c *CQ) push(wc *ib.WC, solicited bool) bool {
	if c.overrun {
		return false
	}
	if !c.ring.Push(wc) {
		c.overrun, c.errored = true, true
		return false
	}
	if c.ring.TakeArm(solicited || wc.Status != ib.WCSuccess) {
		c.notify = true
	}
	return true
}

// Overrun reports whether the CQ is dead.
func (c *CQ) Overrun() bool { return c.overrun }

// TakeNotify reports, once, that an armed event is due.
func (c *CQ) TakeNotify() bool {
	due := c.notify
	c.notify = false
	return due
}

// TakeError reports, once, that the CQ overran: EventCQErr is due.
func (c *CQ) TakeError() bool {
	due := c.errored
	c.errored = false
	return due
}

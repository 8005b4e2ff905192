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

	due     *Due
	listed  bool
	nextDue *CQ
}

// NewCQ returns a CQ that writes to a ring and, if due is not nil, enters itself
// there when it has something to tell.
func NewCQ(r *ring.CQ, due *Due) *CQ { return &CQ{ring: r, due: due} }

// SetRing exchanges the ring, to which the completions have been moved.
func (c *CQ) SetRing(r *ring.CQ) { c.ring = r }

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
		c.tell()
		return false
	}
	if c.ring.TakeArm(solicited || wc.Status != ib.WCSuccess) {
		c.notify = true
		c.tell()
	}
	return true
}

func (c *CQ) tell() {
	if c.due == nil || c.listed {
		return
	}
	c.listed, c.nextDue = true, c.due.cqs
	c.due.cqs = c
}

// Due lists the CQs and SRQs of a shard that have an event to tell. Whoever made
// the input that caused it takes them out again.
type Due struct {
	cqs  *CQ
	srqs *SRQ
}

// CQ returns a CQ with something to tell and takes it off the list; nil if there
// is none.
func (d *Due) CQ() *CQ {
	c := d.cqs
	if c != nil {
		d.cqs, c.nextDue, c.listed = c.nextDue, nil, false
	}
	return c
}

// SRQ does the same for SRQs.
func (d *Due) SRQ() *SRQ {
	s := d.srqs
	if s != nil {
		d.srqs, s.nextDue, s.listed = s.nextDue, nil, false
	}
	return s
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

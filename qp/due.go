package qp

import "sync"

// Due lists the CQs and SRQs that got an event from an input to one of the shard's
// QPs. The owner that made the input takes them out again with CQ and SRQ.
//
// A CQ or SRQ that several shards use is in one list at a time: the shard that has it
// listed also delivers the events that other shards add meanwhile.
type Due struct {
	cqs  *CQ
	srqs *SRQ
}

// addCQ lists c, whose lock the caller holds.
func (d *Due) addCQ(c *CQ) {
	if d == nil || c.listed {
		return
	}
	c.listed, c.nextDue = true, d.cqs
	d.cqs = c
}

// addSRQ lists s, whose lock the caller holds.
func (d *Due) addSRQ(s *SRQ) {
	if d == nil || s.listed {
		return
	}
	s.listed, s.nextDue = true, d.srqs
	d.srqs = s
}

// CQ removes a CQ with an event from the list and returns it; nil if there is none.
func (d *Due) CQ() *CQ {
	c := d.cqs
	if c != nil {
		acquire(c.lock)
		d.cqs, c.nextDue, c.listed = c.nextDue, nil, false
		release(c.lock)
	}
	return c
}

// SRQ does the same for SRQs.
func (d *Due) SRQ() *SRQ {
	s := d.srqs
	if s != nil {
		acquire(s.lock)
		d.srqs, s.nextDue, s.listed = s.nextDue, nil, false
		release(s.lock)
	}
	return s
}

// acquire and release lock and unlock an object that several shards may use; l is nil
// for an object of one shard.
func acquire(l sync.Locker) {
	if l != nil {
		l.Lock()
	}
}

func release(l sync.Locker) {
	if l != nil {
		l.Unlock()
	}
}

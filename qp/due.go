package qp

import "sync"

// Due lists the CQs and SRQs that have an event to tell since an input to one of
// the shard's QPs. Whoever made the input takes them out again.
//
// A CQ or SRQ that several shards use stands in one list at a time: what another
// shard adds meanwhile is told by the shard that has it listed.
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

// CQ returns a CQ with something to tell and takes it off the list; nil if there
// is none.
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

// acquire and release work the lock of an object that several shards may use; with
// one shard there is none.
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

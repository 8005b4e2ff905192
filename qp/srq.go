package qp

import (
	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/mr"
	"github.com/goroce/goroce/qp/ring"
)

// SRQ is the device's end of a shared receive queue. It belongs to the shard
// whose QPs take receives from it.
type SRQ struct {
	ring *ring.Recv
	pd   *mr.PD
	// XRC: where receives complete, and the domain that targets must be of.
	cq   *CQ
	xrcd *XRCD

	limit   int  // armed if not 0
	reached bool // the limit event is due
	broken  bool // the ring made no sense
	errored bool // the event of that is due

	// Owner is for the engine that holds the SRQ.
	Owner any

	due     *Due
	listed  bool
	nextDue *SRQ
}

// XRCD is an XRC domain: XRC targets take receives from the SRQs of theirs.
type XRCD struct{ _ byte }

// SRQs finds the XRC SRQ that a request names; nil if there is none.
type SRQs interface{ SRQ(num uint32) *SRQ }

// NewSRQ returns an SRQ that takes receives from a ring. cq and xrcd are nil but
// for XRC; due is as with NewCQ.
func NewSRQ(r *ring.Recv, pd *mr.PD, cq *CQ, xrcd *XRCD, due *Due) *SRQ {
	return &SRQ{ring: r, pd: pd, cq: cq, xrcd: xrcd, due: due}
}

func (s *SRQ) tell() {
	if s.due == nil || s.listed {
		return
	}
	s.listed, s.nextDue = true, s.due.srqs
	s.due.srqs = s
}

// SetRing exchanges the ring, to which the receives have been moved.
func (s *SRQ) SetRing(r *ring.Recv) { s.ring = r }

// SetLimit arms the limit event: it is due when fewer than n receives are left,
// which may be at once. 0 disarms.
func (s *SRQ) SetLimit(n int) {
	s.limit = n
	s.checkLimit()
}

// Limit returns the armed limit; 0 if there is none, or it was reached.
func (s *SRQ) Limit() int { return s.limit }

// checkLimit raises the limit event, once for each arming (IBTA 10.2.9.3).
func (s *SRQ) checkLimit() {
	if s.limit > 0 && s.ring.Available() < s.limit {
		s.limit, s.reached = 0, true
		s.tell()
	}
}

// pop copies the next receive out, if one is posted.
func (s *SRQ) pop(wr *ib.RecvWR) (bool, error) {
	ok, err := s.ring.Pop(wr)
	if err != nil && !s.broken {
		s.broken, s.errored = true, true
		s.tell()
	}
	if ok {
		s.ring.Release(1)
		s.checkLimit()
	}
	return ok, err
}

// CQ returns where the receives of an XRC SRQ complete; nil for a basic one.
func (s *SRQ) CQ() *CQ { return s.cq }

// TakeEvent returns an event that is due, as QP.TakeEvent does.
func (s *SRQ) TakeEvent() (t ib.EventType, ok bool) {
	switch {
	case s.reached:
		s.reached = false
		return ib.EventSRQLimit, true
	case s.errored:
		s.errored = false
		return ib.EventSRQErr, true
	}
	return 0, false
}

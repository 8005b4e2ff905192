package qp

import (
	"sync"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/mr"
	"github.com/goroce/goroce/qp/ring"
)

// SRQ is the device's end of a shared receive queue. It belongs to the shard
// whose QPs take receives from it; the QPs of several shards may if it has a lock.
type SRQ struct {
	lock sync.Locker // nil with one shard
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

	listed  bool // in the Due of some shard
	nextDue *SRQ
}

// XRCD is an XRC domain: XRC targets take receives from the SRQs of theirs.
type XRCD struct{ _ byte }

// SRQs finds the XRC SRQ that a request names; nil if there is none.
type SRQs interface{ SRQ(num uint32) *SRQ }

// NewSRQ returns an SRQ that takes receives from a ring. cq and xrcd are nil but
// for XRC; lock is as with NewCQ.
func NewSRQ(r *ring.Recv, pd *mr.PD, cq *CQ, xrcd *XRCD, lock sync.Locker) *SRQ {
	return &SRQ{lock: lock, ring: r, pd: pd, cq: cq, xrcd: xrcd}
}

// Capacity returns how many receives the queue holds, and how many pieces one may have.
func (s *SRQ) Capacity() (entries, maxSGE int) {
	acquire(s.lock)
	defer release(s.lock)
	return s.ring.Entries(), s.ring.MaxSGE()
}

// Resize moves the receives to another ring, as CQ.Resize does with completions.
func (s *SRQ) Resize(r *ring.Recv) bool {
	acquire(s.lock)
	defer release(s.lock)
	if !s.ring.MoveTo(r) {
		return false
	}
	s.ring = r
	return true
}

// prepare gives wr room for any receive of the queue.
func (s *SRQ) prepare(wr *ib.RecvWR) {
	acquire(s.lock)
	defer release(s.lock)
	s.ring.Prepare(wr)
}

// SetLimit arms the limit event: it is due when fewer than n receives are left,
// which may be at once, and is listed in due then. 0 disarms.
func (s *SRQ) SetLimit(n int, due *Due) {
	acquire(s.lock)
	defer release(s.lock)
	s.limit = n
	s.checkLimit(due)
}

// Limit returns the armed limit; 0 if there is none, or it was reached.
func (s *SRQ) Limit() int {
	acquire(s.lock)
	defer release(s.lock)
	return s.limit
}

// checkLimit raises the limit event, once for each arming (IBTA 10.2.9.3).
func (s *SRQ) checkLimit(due *Due) {
	if s.limit > 0 && s.ring.Available() < s.limit {
		s.limit, s.reached = 0, true
		due.addSRQ(s)
	}
}

// pop copies the next receive out, if one is posted. What there is to tell then is
// listed in due.
func (s *SRQ) pop(wr *ib.RecvWR, due *Due) (bool, error) {
	if s.lock == nil {
		return s.take(wr, due)
	}
	s.lock.Lock()
	defer s.lock.Unlock()
	return s.take(wr, due)
}

func (s *SRQ) take(wr *ib.RecvWR, due *Due) (bool, error) {
	ok, err := s.ring.Pop(wr)
	if err != nil && !s.broken {
		s.broken, s.errored = true, true
		due.addSRQ(s)
	}
	if ok {
		s.ring.Release(1)
		s.checkLimit(due)
	}
	return ok, err
}

// ForgetSRQ ends all use of an SRQ that is being destroyed, by an XRC target: no object of
// the target's own names it, but its peer's requests do. The owner calls it once requests
// find the SRQ no more, and before the memory of its ring and of its CQ goes. A receive that
// the target has taken is forgotten, as those are that are posted; what is left of its
// message is refused, like a request for an SRQ that does not exist.
func (q *QP) ForgetSRQ(s *SRQ) {
	r := &q.resp
	if !q.svc.xrc {
		return
	}
	if r.srq == s {
		r.srq, r.inside = nil, noMessage
	}
	if r.recv.srq == s {
		r.recv.srq, r.recv.cq, r.recv.held = nil, nil, false
	}
	for i := r.commits.head; i != r.commits.tail; i++ {
		if c := r.commits.at(i); c.srq == s {
			c.hasWC, c.srq, c.cq = false, nil, nil
		}
	}
}

// CQ returns where the receives of an XRC SRQ complete; nil for a basic one.
func (s *SRQ) CQ() *CQ { return s.cq }

// TakeEvent returns an event that is due, as QP.TakeEvent does.
func (s *SRQ) TakeEvent() (t ib.EventType, ok bool) {
	acquire(s.lock)
	defer release(s.lock)
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

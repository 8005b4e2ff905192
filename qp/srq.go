package qp

import (
	"sync"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/mr"
	"github.com/goroce/goroce/qp/ring"
)

// SRQ is the device's end of a shared receive queue. QPs of one shard take receives
// from it, or QPs of several shards if it has a lock.
type SRQ struct {
	lock sync.Locker // nil with one shard
	ring *ring.Recv
	pd   *mr.PD
	// XRC: the CQ in which receives complete, and the domain that targets must belong to.
	cq   *CQ
	xrcd *XRCD

	limit   int  // armed if not 0
	reached bool // EventSRQLimit is pending
	broken  bool // the ring's content was invalid
	errored bool // EventSRQErr is pending for that

	// Owner is for the engine that holds the SRQ.
	Owner any

	listed  bool // in the Due of some shard
	nextDue *SRQ
}

// XRCD is an XRC domain: XRC targets take receives only from SRQs of their own domain.
type XRCD struct{ _ byte }

// SRQs finds the XRC SRQ that a request names; nil if there is none.
type SRQs interface{ SRQ(num uint32) *SRQ }

// NewSRQ returns an SRQ that takes receives from a ring. cq and xrcd are nil except
// for XRC; lock is as with NewCQ.
func NewSRQ(r *ring.Recv, pd *mr.PD, cq *CQ, xrcd *XRCD, lock sync.Locker) *SRQ {
	return &SRQ{lock: lock, ring: r, pd: pd, cq: cq, xrcd: xrcd}
}

// Capacity returns how many receives the queue holds, and how many SGEs one may have.
func (s *SRQ) Capacity() (entries, maxSGE int) {
	acquire(s.lock)
	defer release(s.lock)
	return s.ring.Entries(), s.ring.MaxSGE()
}

// Resize moves the receives to another ring, as CQ.Resize does with completions.
func (s *SRQ) Resize(r *ring.Recv) (step func() (moved int, done, fits bool)) {
	return resize(s.lock, func() *ring.Move { return s.ring.MoveTo(r) }, func() { s.ring = r })
}

// prepare allocates an SGL in wr that has room for any receive of the queue.
func (s *SRQ) prepare(wr *ib.RecvWR) {
	acquire(s.lock)
	defer release(s.lock)
	s.ring.Prepare(wr)
}

// SetLimit arms the limit event: it is raised when fewer than n receives are left,
// which may be at once, and the SRQ is listed in due then. 0 disarms.
func (s *SRQ) SetLimit(n int, due *Due) {
	acquire(s.lock)
	defer release(s.lock)
	s.limit = n
	s.checkLimit(due)
}

// Limit returns the armed limit; 0 if none is armed, or it was reached.
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

// pop copies the next receive out of the ring, if one is posted. If that raises an
// event, the SRQ is listed in due.
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
	if !ok && err != nil && !s.broken {
		s.broken, s.errored = true, true
		due.addSRQ(s)
	}
	if ok {
		s.ring.Release(1)
		s.checkLimit(due)
	}
	return ok, err
}

// ForgetSRQ makes an XRC target drop all references to an SRQ that is being destroyed: only
// requests of its peer name the SRQ. The owner calls it once Config.SRQs does not return the
// SRQ any more, and before the memory of its ring and of its CQ is freed. A receive that the
// target has taken never completes, nor do those that are posted. The rest of its message is
// refused, like a request for an SRQ that does not exist.
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

// CQ returns the CQ in which the receives of an XRC SRQ complete; nil for a basic one.
func (s *SRQ) CQ() *CQ { return s.cq }

// TakeEvent returns a pending event and clears it; ok is false if there is none.
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

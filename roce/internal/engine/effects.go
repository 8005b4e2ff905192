package engine

import (
	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/qp"
)

// applyEffects carries out the effects of a QP (qp.Effects) after an input or after its packets were copied. It
// returns how many requests the QP has taken out of its ring.
func (s *Shard) applyEffects(q *QP) (taken int) {
	e := q.core.Effects()
	if len(e.Placements) > 0 {
		s.place(q, e.Placements)
	}
	if len(e.Fetches) > 0 {
		s.fetch(q, e.Fetches)
	}
	if e.Send {
		s.ready.push(q)
	}
	if e.Doorbell {
		s.ring(q)
	}
	s.deadlines.want(q, e.Deadline)
	s.deliver()
	for t := range e.Events.All() {
		s.engine.owner.QPEvent(q, t)
	}
	s.publishState(q, e.State)
	s.observeOffload(q, e.State)
	if q.flow != nil {
		s.meet(q.flow, &q.path)
	}
	s.wakeFlowWaiters(q.flow)
	return e.Taken
}

// deliver delivers the pending events of CQs and SRQs.
func (s *Shard) deliver() {
	owner := s.engine.owner
	for c := s.due.CQ(); c != nil; c = s.due.CQ() {
		if c.TakeNotify() {
			owner.CQNotify(c)
		}
		if c.TakeError() {
			owner.CQError(c)
		}
	}
	for srq := s.due.SRQ(); srq != nil; srq = s.due.SRQ() {
		for t, ok := srq.TakeEvent(); ok; t, ok = srq.TakeEvent() {
			owner.SRQEvent(srq, t)
		}
	}
}

// publishState copies q's state to the posting side. A receive that was posted while the QP went to ERR
// may have missed the flush, so show rings the doorbell, which flushes it.
func (s *Shard) publishState(q *QP, state ib.QPState) {
	if q.front.SetState(state) == state || state != ib.StateErr && state != ib.StateSQE {
		return
	}
	failed, refused := q.core.Failure()
	s.engine.owner.QPFailed(q, failed, refused)
	if state == ib.StateErr {
		s.ring(q)
	}
}

// wakeFlowWaiters makes QPs ready that waited for room in the congestion window of a destination.
func (s *Shard) wakeFlowWaiters(f *flow) {
	if f == nil {
		return
	}
	for core := f.account.Next(); core != nil; core = f.account.Next() {
		s.ready.push(core.Owner.(*QP))
	}
}

// SetSRQLimit arms the limit of an SRQ. If the limit is reached already, the event is delivered at once.
func (s *Shard) SetSRQLimit(srq *qp.SRQ, limit int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	srq.SetLimit(limit, &s.due)
	s.deliver()
}

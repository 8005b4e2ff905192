package engine

import (
	"fmt"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/internal/fault"
)

// A shard touches memory that applications in other processes share: rings, doorbells and
// regions. That it is there is the care of who has mapped it. Should it not be there all the
// same, for a mistake or for a page that the kernel cannot bring, one application fails and
// not the process: the loop's goroutine panics on faults (debug.SetPanicOnFault) and recovers
// at the end of the turn. That costs a pointer for each input to a QP, which names the QP at
// hand: it is abandoned, and its owner told.
//
// What the turn had before it and has not come to is done by the next: doorbells and answers
// of workers stay in their lists, timers and ready QPs in theirs. Frames that were received
// are lost, as on a wire. The memory of this process's own applications is their affair: there a
// fault ends the process.

// survive goes on after a panic of a turn, if it was a fault of memory that an application
// shares. The caller has recovered v, and holds mu.
func (s *Shard) survive(v any) {
	addr, ok := fault.Addr(v)
	q := s.hand
	s.hand = nil
	switch {
	case !ok:
		panic(v)
	case q == nil:
		if r := s.doorbells.remote; r == nil || !r.Faulted() {
			panic(v)
		}
	case !q.remote || !s.engine.owner.Fault(q, addr):
		panic(v)
	}
	s.rx.n, s.rx.qp = 0, nil
	s.tx.giveUp()
	s.doorbells.again()
	s.answers.again()
	if q != nil && q.core != nil {
		q.core.Abandon()
		s.after(q)
	}
	s.deliver()
}

// giveUp drops the run that was begun, if nothing is in it.
func (t *transmitter) giveUp() {
	t.open = false
	if t.n > 0 && len(t.runs[t.n-1].Buf) == 0 {
		t.n--
	}
}

// sleepSafely is sleep, in which doorbells are touched too.
func (s *Shard) sleepSafely(now ib.Instant) error {
	defer func() {
		if v := recover(); v != nil {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.hand = nil
			s.survive(v)
		}
	}()
	return s.sleep(now)
}

// resetSafely takes q, which is being closed, to RESET, after an ACK that it owes. If the
// memory of its application is not there, q is closed all the same.
func (s *Shard) resetSafely(q *QP) {
	defer func() {
		if v := recover(); v != nil {
			addr, ok := fault.Addr(v)
			if !ok || !q.remote || !s.engine.owner.Fault(q, addr) {
				panic(v)
			}
			s.tx.giveUp()
			q.core.Abandon()
		}
	}()
	s.tx.lastACK(q)
	toReset := ib.QPAttr{State: ib.Reset}
	if err := q.core.Modify(s.now, &toReset, ib.AttrState); err != nil {
		panic(fmt.Sprintf("engine: QP %#x cannot be reset: %v", uint32(q.num), err)) // RESET is legal from everywhere
	}
}

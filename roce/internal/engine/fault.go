package engine

import (
	"fmt"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/internal/fault"
)

// A shard touches memory that applications in other processes share: rings, doorbells and
// regions. The package that maps the memory keeps it mapped. If a shard still faults on it, because
// of a bug or because the kernel cannot supply a page, only that application fails, not the
// process: the loop's goroutine panics on faults (debug.SetPanicOnFault) and recovers at the end
// of the turn. For this each input to a QP first stores the QP in Shard.current. After a fault the
// shard abandons that QP and calls Owner.Fault. Turns that an application of this process takes
// (Shard.Help, QP.Posted) do not recover: the daemon, whose tenants share memory, has no such
// applications.
//
// The next turn does the remaining work of the turn that failed: doorbells, answers of workers,
// timers and ready QPs stay in their lists. Frames that were received are lost, as if the network
// had dropped them. A fault in memory of this process's own applications ends the process.

// survive recovers from a panic of a turn if it was a fault in memory that an application
// shares; otherwise it panics again. The caller has recovered v, and holds mu.
func (s *Shard) survive(v any) {
	addr, ok := fault.Addr(v)
	q := s.current
	s.current = nil
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
	s.rx.giveUp()
	s.tx.giveUp()
	if q != nil && q.core != nil {
		q.core.Abandon()
		s.applyEffects(q)
	}
	s.deliver()
}

// giveUp closes the last run, and removes it if it is empty.
func (t *transmitter) giveUp() {
	t.open = false
	if t.n > 0 && len(t.runs[t.n-1].Buf) == 0 {
		t.n--
	}
}

// sleepSafely calls sleep, and recovers from faults in doorbells, which sleep touches too.
func (s *Shard) sleepSafely(now ib.Instant) error {
	defer func() {
		if v := recover(); v != nil {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.current = nil
			s.survive(v)
		}
	}()
	return s.sleep(now)
}

// resetSafely sends the pending ACK of q, which is being closed, and moves q to RESET. If the
// memory of its application is not mapped, it abandons q, so that q can still be closed.
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
	toReset := ib.QPAttr{State: ib.StateReset}
	if err := q.core.Modify(s.now, &toReset, ib.AttrState); err != nil {
		panic(fmt.Sprintf("engine: QP %#x cannot be reset: %v", uint32(q.num), err)) // RESET is legal from every state
	}
}

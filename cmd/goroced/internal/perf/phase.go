package perf

import (
	"sync/atomic"
	"time"
)

// phase is a part of a run with a given duration, whose first and last quarter are not measured. A run with a given
// number of messages is measured all the time.
type phase int32

const (
	warming phase = iota
	sampling
	cooling
	ended
)

// schedule has the phases of a run.
type schedule struct {
	now    atomic.Int32 // phase
	timers []*time.Timer
}

// set sets the schedule of a run that has not begun.
func (s *schedule) set(d time.Duration) {
	s.cancel()
	if d == 0 {
		s.now.Store(int32(sampling))
		return
	}
	s.now.Store(int32(warming))
}

// begin starts the clock.
func (s *schedule) begin(d time.Duration) {
	if d == 0 || s.timers != nil {
		return
	}
	for _, step := range []struct {
		at time.Duration
		p  phase
	}{{d / 4, sampling}, {d - d/4, cooling}, {d, ended}} {
		s.timers = append(s.timers, time.AfterFunc(step.at, func() { s.enter(step.p) }))
	}
}

// enter goes to a phase. It only goes forward, because late timers fire in any order.
func (s *schedule) enter(p phase) {
	for {
		now := s.now.Load()
		if now >= int32(p) || s.now.CompareAndSwap(now, int32(p)) {
			return
		}
	}
}

func (s *schedule) phase() phase { return phase(s.now.Load()) }

func (s *schedule) cancel() {
	for _, t := range s.timers {
		t.Stop()
	}
	s.timers = nil
}

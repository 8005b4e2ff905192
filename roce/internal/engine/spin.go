package engine

import (
	"time"

	"github.com/goroce/goroce/ib"
)

// spinner decides how long an idle shard looks for work before it sleeps. To be
// woken costs more than most gaps in a stream last, so it looks for as long as
// gaps last at present; where they are long anyway, it hardly looks.
type spinner struct {
	least, most ib.Instant
	budget      ib.Instant // of an idle time
	since       ib.Instant // when this one began; ib.Never while there is work
}

// yieldTimer says when a goroutine that does not rest yields to others. One that the
// scheduler has not seen for 10 ms loses its processor in the middle of a system call, and
// the runtime's monitor, which does that, then wakes every 20 us to look whether there is
// more of the kind (runtime, retake and sysmon).
type yieldTimer struct{ next ib.Instant }

// betweenYields is less than those 10 ms.
const betweenYields = ib.Instant(5 * time.Millisecond)

func (y *yieldTimer) due(now ib.Instant) bool {
	if now < y.next {
		return false
	}
	y.next = now + betweenYields
	return true
}

// leastSpin is how long a shard looks however long gaps were. In each gap that is
// longer, this much is wasted.
const leastSpin = 20 * time.Microsecond

func (s *spinner) init(most time.Duration) {
	s.most = ib.Instant(most)
	s.least = min(ib.Instant(leastSpin), s.most)
	s.budget = s.least
	s.reset()
}

// reset forgets an idle time that ended otherwise.
func (s *spinner) reset() { s.since = ib.Never }

// busy learns from the idle time that ends with work found at now, if there was
// any.
func (s *spinner) busy(now ib.Instant) {
	if s.since == ib.Never {
		return
	}
	switch gap := now - s.since; {
	case gap > s.most: // sleep was right
		s.budget = max(s.budget/2, s.least)
	case gap > s.budget/2:
		s.budget = min(2*gap, s.most)
	}
	s.reset()
}

// idle reports, when nothing was found at now, whether to look once more.
func (s *spinner) idle(now ib.Instant) bool {
	if s.since == ib.Never {
		s.since = now
	}
	if now-s.since >= s.budget {
		return false
	}
	return true
}

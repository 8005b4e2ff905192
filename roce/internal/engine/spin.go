package engine

import (
	"time"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/ib/driver"
)

// spinner decides how long an idle shard spins before it sleeps. A wake-up costs more
// time than most gaps in a stream last, so the shard spins for as long as recent gaps
// lasted; when gaps are long, it spins only for leastSpin.
type spinner struct {
	least, most ib.Instant
	budget      ib.Instant // how long to spin in an idle time
	since       ib.Instant // when the current idle time began; driver.Never while there is work
}

// yieldTimer says when a goroutine that never blocks calls Gosched. If it has not entered the
// scheduler for 10 ms, the runtime's monitor takes its P away in the middle of a system call,
// and then wakes every 20 us to look for more such goroutines (retake and sysmon in package
// runtime).
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

// leastSpin is how long a shard spins at least, however long recent gaps were. Each longer
// gap wastes this much time.
const leastSpin = 20 * time.Microsecond

func (s *spinner) init(most time.Duration) {
	s.most = ib.Instant(most)
	s.least = min(ib.Instant(leastSpin), s.most)
	s.budget = s.least
	s.reset()
}

// reset ends an idle time without learning from it.
func (s *spinner) reset() { s.since = driver.Never }

// busy adjusts the budget to the idle time, if any, that ends because work was found
// at now.
func (s *spinner) busy(now ib.Instant) {
	if s.since == driver.Never {
		return
	}
	switch gap := now - s.since; {
	case gap > s.most: // the gap was too long to spin through
		s.budget = max(s.budget/2, s.least)
	case gap > s.budget/2:
		s.budget = min(2*gap, s.most)
	}
	s.reset()
}

// idle notes that no work was found at now, and reports whether to look once more.
func (s *spinner) idle(now ib.Instant) bool {
	if s.since == driver.Never {
		s.since = now
	}
	if now-s.since >= s.budget {
		return false
	}
	return true
}

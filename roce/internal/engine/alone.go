package engine

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/goroce/goroce/ib"
)

// Packets go alone, each in a run of its own, to a destination that runs have been shown
// not to reach (package offload).
const (
	aloneFor  = ib.Instant(10 * time.Minute) // then runs are on trial again
	aloneMost = 1024                         // destinations at a time
)

// aloneTable is the destinations to which packets go alone. What one destination answers
// decides for that one only: a peer that lies slows nobody else down.
type aloneTable struct {
	changes atomic.Uint32 // how often until has changed; 0 is what most devices ever see

	mu    sync.Mutex
	until map[ib.GID]ib.Instant
}

// add puts dst into the table and reports whether it was not there. In a full table
// nobody takes another's place.
func (a *aloneTable) add(dst ib.GID, now ib.Instant) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if now < a.until[dst] {
		return false
	}
	for gid, until := range a.until {
		if until <= now {
			delete(a.until, gid)
		}
	}
	if len(a.until) == aloneMost {
		return false
	}
	if a.until == nil {
		a.until = map[ib.GID]ib.Instant{}
	}
	a.until[dst] = now + aloneFor
	a.changes.Add(1)
	return true
}

// get returns until when packets to dst go alone; 0 if they need not.
func (a *aloneTable) get(dst ib.GID) ib.Instant {
	if a.changes.Load() == 0 {
		return 0
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.until[dst]
}

// list returns the destinations, in order.
func (a *aloneTable) list(now ib.Instant) (list []ib.GID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for gid, until := range a.until {
		if now < until {
			list = append(list, gid)
		}
	}
	slices.SortFunc(list, func(a, b ib.GID) int { return slices.Compare(a[:], b[:]) })
	return list
}

// OffloadOff returns the destinations to which packets go alone, because runs did not
// arrive there.
func (e *Engine) OffloadOff() []ib.GID { return e.alone.list(e.Clock()) }

// alone reports whether packets to a destination go alone. When that is over, runs to it
// are on trial until one has arrived.
func (s *Shard) alone(f *flow) bool {
	table := &s.engine.alone
	if n := table.changes.Load(); n != f.aloneSeen {
		f.aloneSeen, f.aloneUntil = n, table.get(f.dst)
	}
	switch {
	case f.aloneUntil == 0:
		return false
	case s.now < f.aloneUntil:
		return true
	}
	f.aloneUntil = 0
	f.trial.Begin()
	return false
}

package engine

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/goroce/goroce/ib"
)

// Packets go alone, each in a run of its own, to a destination for which package offload has
// shown that runs do not arrive.
const (
	aloneFor  = ib.Instant(10 * time.Minute) // afterwards runs are on trial again
	aloneMost = 1024                         // destinations in the table at a time
)

// aloneTable holds the destinations to which packets go alone. Acknowledgements of a destination
// count for that destination only, so a lying peer slows down no traffic to others.
type aloneTable struct {
	changes atomic.Uint32 // how often until has changed; 0 on most devices

	mu    sync.Mutex
	until map[ib.GID]ib.Instant
}

// add puts dst into the table and reports whether it did: not if dst is in it already, or the
// table is full.
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

// get returns the time until which packets to dst go alone; 0 if they need not.
func (a *aloneTable) get(dst ib.GID) ib.Instant {
	if a.changes.Load() == 0 {
		return 0
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.until[dst]
}

// list returns the destinations in the table at now, sorted.
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

// alone reports whether packets to a destination go alone. When that time is over, runs to it
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

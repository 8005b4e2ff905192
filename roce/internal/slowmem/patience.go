package slowmem

import (
	"sync/atomic"
	"time"

	"github.com/goroce/goroce/ib"
)

// Quick reports whether a goroutine that must not wait may take a turn: the worker can tell
// what a turn costs, and memory has not been slow lately.
func (w *Worker[Q]) Quick(now ib.Instant) bool { return w.opts.Effort != nil && w.patience.has(now) }

// effort is what a thread has spent.
type effort struct {
	cpu    time.Duration
	sleeps uint64
}

// effort asks what this thread has spent so far.
func (w *Worker[Q]) effort() (e effort) {
	if w.opts.Effort != nil {
		e.cpu, e.sleeps = w.opts.Effort()
	}
	return e
}

// patience is that of the shards with a worker.
type patience struct {
	lost  atomic.Int64 // until when
	spell ib.Instant   // for how long, the last time
}

// Bounds of the time for which patience is lost: twice as long each time that memory is
// slow, unless it has not been for patienceBack times as long.
const (
	leastSpell   = ib.Instant(10 * time.Millisecond)
	mostSpell    = ib.Instant(10 * time.Second)
	patienceBack = 16
)

// Memory is slow if it makes a thread sleep, or takes more of the processor than this. Pages
// that must be made are well within it, huge ones are not.
const (
	slowTurn = 100 * time.Microsecond // and
	slowByte = 2 * time.Nanosecond    // for each
)

func (p *patience) has(now ib.Instant) bool { return int64(now) >= p.lost.Load() }

// learn notes what a turn has cost that ends now, and the bytes that it has moved.
func (p *patience) learn(now ib.Instant, before, after effort, bytes int) {
	if after.sleeps == before.sleeps && after.cpu-before.cpu <= slowTurn+time.Duration(bytes)*slowByte {
		return
	}
	if since := now - ib.Instant(p.lost.Load()); since > patienceBack*p.spell {
		p.spell = 0
	}
	p.spell = max(min(2*p.spell, mostSpell), leastSpell)
	p.lost.Store(int64(now + p.spell))
}

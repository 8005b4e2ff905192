package slowmem

import (
	"sync/atomic"
	"time"

	"github.com/goroce/goroce/ib"
)

// Quick reports whether a goroutine that must not wait may take a turn of the worker: the worker
// can measure the cost of a turn (Options.Effort), and its memory has not been slow lately.
func (w *Worker[Q]) Quick(now ib.Instant) bool { return w.opts.Effort != nil && w.patience.has(now) }

// effort is the processor time of a thread, and how often it has slept.
type effort struct {
	cpu    time.Duration
	sleeps uint64
}

// effort returns the effort of this thread so far.
func (w *Worker[Q]) effort() (e effort) {
	if w.opts.Effort != nil {
		e.cpu, e.sleeps = w.opts.Effort()
	}
	return e
}

// patience decides for how long the shards take no turns of a worker whose memory was slow.
type patience struct {
	lost  atomic.Int64 // the ib.Instant until which shards take no turns
	spell ib.Instant   // how long that was the last time
}

// Bounds of the time for which shards take no turns of the worker. It doubles each time that
// memory is slow, and starts again when memory has not been slow for patienceBack times as long.
const (
	leastSpell   = ib.Instant(10 * time.Millisecond)
	mostSpell    = ib.Instant(10 * time.Second)
	patienceBack = 16
)

// Memory is slow if a turn makes its thread sleep, or takes more processor time than slowTurn
// and slowByte allow. The allocation of pages is well within that, of huge pages it is not.
const (
	slowTurn = 100 * time.Microsecond // for each turn
	slowByte = 2 * time.Nanosecond    // for each byte
)

func (p *patience) has(now ib.Instant) bool { return int64(now) >= p.lost.Load() }

// learn judges a turn that ends now and has moved the given number of bytes, by its thread's
// effort before and after.
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

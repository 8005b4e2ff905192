package slowmem

import (
	"sync/atomic"
	"time"

	"github.com/goroce/goroce/ib"
)

// Quick reports whether a goroutine that must not wait may take a turn of the worker: the worker
// can tell whether memory was slow (Options.Stalls), and it has not been slow lately.
func (w *Worker[Q]) Quick(now ib.Instant) bool { return w.opts.Stalls != nil && w.patience.has(now) }

// stalls returns how often this thread has slept, or a page was not there.
func (w *Worker[Q]) stalls() uint64 {
	if w.opts.Stalls == nil {
		return 0
	}
	return w.opts.Stalls()
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

// Memory is slow if a turn takes longer than slowTurn and slowByte allow, and its thread has slept or a page was not
// there: a page came from a disk, a huge page was cleared, or the process was changing its mappings. Otherwise it was
// others that took the processor. The allocation of a few pages is well within what is allowed.
const (
	slowTurn = 100 * time.Microsecond // for each turn
	slowByte = 2 * time.Nanosecond    // for each byte
)

// quick is the longest that a turn over quick memory takes.
func quick(bytes int) time.Duration { return slowTurn + time.Duration(bytes)*slowByte }

func (p *patience) has(now ib.Instant) bool { return int64(now) >= p.lost.Load() }

// lose is called at the end of a turn whose memory was slow.
func (p *patience) lose(now ib.Instant) {
	if since := now - ib.Instant(p.lost.Load()); since > patienceBack*p.spell {
		p.spell = 0
	}
	p.spell = max(min(2*p.spell, mostSpell), leastSpell)
	p.lost.Store(int64(now + p.spell))
}

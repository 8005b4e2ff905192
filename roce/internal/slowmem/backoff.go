package slowmem

import (
	"sync/atomic"
	"time"

	"github.com/goroce/goroce/ib"
)

// Quick reports whether a goroutine that must not wait may take a turn of the worker: the worker
// can tell whether memory was slow (Options.Stalls), and it has not been slow lately.
func (w *Worker[Q]) Quick(now ib.Instant) bool { return w.opts.Stalls != nil && w.backoff.over(now) }

// stalls returns how many times this thread has slept or had a page fault.
func (w *Worker[Q]) stalls() uint64 {
	if w.opts.Stalls == nil {
		return 0
	}
	return w.opts.Stalls()
}

// backoff is the time for which the shards take no turns of a worker whose memory was slow.
type backoff struct {
	until atomic.Int64 // the ib.Instant until which shards take no turns
	last  ib.Instant   // the latest backoff time
}

// Bounds of the backoff time. It doubles each time that memory is slow, and starts again at the
// least when memory has not been slow for backoffReset times the latest backoff time.
const (
	leastBackoff = ib.Instant(10 * time.Millisecond)
	mostBackoff  = ib.Instant(10 * time.Second)
	backoffReset = 16
)

// Memory is slow if a turn takes longer than slowTurn and slowByte allow, and its thread has slept or had a page fault:
// a page came from a disk, a huge page was cleared, or the process was changing its mappings. After a long turn without
// either, other threads have had the processor. The allocation of a few pages is well within what is allowed.
const (
	slowTurn = 100 * time.Microsecond // for each turn
	slowByte = 2 * time.Nanosecond    // for each byte
)

// quick is the longest that a turn over quick memory takes.
func quick(bytes int) time.Duration { return slowTurn + time.Duration(bytes)*slowByte }

// over reports whether the backoff time has passed.
func (b *backoff) over(now ib.Instant) bool { return int64(now) >= b.until.Load() }

// extend is called at the end of a turn whose memory was slow.
func (b *backoff) extend(now ib.Instant) {
	if since := now - ib.Instant(b.until.Load()); since > backoffReset*b.last {
		b.last = 0
	}
	b.last = max(min(2*b.last, mostBackoff), leastBackoff)
	b.until.Store(int64(now + b.last))
}

package engine

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/goroce/goroce/ib"
)

// A turn of a worker mostly takes less time than to wake its goroutine, and much longer only
// where memory is slow: a page must be fetched, or made. So a shard's loop takes the turn
// itself, inline: between two of its own turns, without the shard's lock. If the worker's
// turn lasts, another goroutine goes on with the loop, as Go's scheduler does with the
// processor of a thread that is in a system call, and the first one only brings the worker's
// turn to its end. A worker whose memory was slow stays on its own goroutine for some
// time, longer each time (slowmem): an application can hold up the others for a small part
// of it only.

// reliefAfter is how long a worker's turn lasts before another goroutine takes the loop.
const reliefAfter = ib.Instant(2 * time.Millisecond)

// inlineTurns are the turns of workers that a shard's loop takes.
type inlineTurns struct {
	shard   *Shard
	own     bool      // the loop takes a turn of its own; guarded by the shard's mu
	workers []*Worker // that were given work since; the loop's

	since   atomic.Int64 // when the worker's turn began that is under way; 0: there is none
	watch   *time.Timer  // of since
	watched atomic.Bool  // watch runs
}

func (t *inlineTurns) init(s *Shard) {
	t.shard = s
	t.watch = time.AfterFunc(time.Hour, t.look)
	t.watch.Stop()
}

// employ sees to it that w, which has work, takes a turn. The caller holds mu.
func (s *Shard) employ(w *Worker) {
	t := &s.inline
	switch {
	case !t.own || !w.Quick(s.now):
		w.Ring()
	case !slices.Contains(t.workers, w):
		t.workers = append(t.workers, w)
	}
}

// workerTurn takes a turn of the worker that has waited longest. relieved says that the
// loop has another goroutine now.
func (s *Shard) workerTurn() (ran, relieved bool) {
	t := &s.inline
	if len(t.workers) == 0 {
		return false, false
	}
	now := s.engine.now()
	w := t.workers[0]
	t.workers = slices.Delete(t.workers, 0, 1)
	if !w.Quick(now) {
		w.Ring()
		return true, false
	}
	t.begin(now)
	more := w.Turn()
	if !t.end(now) {
		w.Ring() // for the rest
		return false, true
	}
	if more {
		t.workers = append(t.workers, w)
	}
	return true, false
}

// handBack leaves all turns to the goroutines of the workers.
func (t *inlineTurns) handBack() {
	for _, w := range t.workers {
		w.Ring()
	}
	clear(t.workers)
	t.workers = t.workers[:0]
}

// begin says that the loop takes a worker's turn.
func (t *inlineTurns) begin(now ib.Instant) {
	t.since.Store(int64(now))
	if !t.watched.Swap(true) {
		t.watch.Reset(time.Duration(reliefAfter))
	}
}

// end reports whether the loop is still the caller's.
func (t *inlineTurns) end(began ib.Instant) bool { return t.since.CompareAndSwap(int64(began), 0) }

// look finds out whether a worker's turn lasts.
func (t *inlineTurns) look() {
	began := ib.Instant(t.since.Load())
	if began == 0 {
		t.watched.Store(false)
		if began = ib.Instant(t.since.Load()); began == 0 || t.watched.Swap(true) {
			return
		}
	}
	rest := began + reliefAfter - t.shard.engine.now()
	if rest <= 0 && t.end(began) {
		go t.shard.run()
		rest = reliefAfter
	}
	t.watch.Reset(time.Duration(max(rest, 0)))
}

package engine

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/goroce/goroce/ib"
)

// A turn of a worker usually takes less time than waking the worker's goroutine would. It takes
// much longer only when a page must be fetched or allocated. So a shard's loop takes the turn
// itself, inline: between two of its own turns, without the shard's lock. If the worker's turn
// exceeds reliefAfter, another goroutine continues the loop (takeOver), as Go's scheduler hands over
// the P of a thread that is in a system call, and the first goroutine only finishes the worker's turn.
// A worker whose memory was slow then stays on its own goroutine for some time, longer each time
// (slowmem), so an application can delay the others for a small part of the time only.

// reliefAfter is how long a worker's turn may take before another goroutine continues the loop. While
// workers have turns, the watch over them wakes a thread once in this time.
const reliefAfter = ib.Instant(5 * time.Millisecond)

// inlineTurns are the turns of workers that a shard's loop takes.
type inlineTurns struct {
	shard   *Shard
	own     bool      // the loop is in a turn of its own; guarded by the shard's mu
	workers []*Worker // workers with work, whose turns the loop takes; used by the loop only
	current *Worker   // the worker whose turn the loop takes, or has taken last

	since   atomic.Int64 // when the current turn of a worker began; 0: there is none
	watch   *time.Timer  // calls look
	watched atomic.Bool  // watch is running
}

func (t *inlineTurns) init(s *Shard) {
	t.shard = s
	t.watch = time.AfterFunc(time.Hour, t.look)
	t.watch.Stop()
}

// inlines reports whether a turn of w would be taken on the loop's goroutine: the loop is in its own
// turn and w is quick. The caller holds mu.
func (s *Shard) inlines(w *Worker) bool { return s.inline.own && w.Quick(s.now) }

// employ makes w, which has work, take a turn: on the loop's goroutine if inline is set, otherwise
// on w's own. The caller holds mu.
func (s *Shard) employ(w *Worker, inline bool) {
	t := &s.inline
	switch {
	case !inline:
		w.Ring()
	case !slices.Contains(t.workers, w):
		t.workers = append(t.workers, w)
	}
}

// workerTurn takes a turn of the worker that has waited longest. relieved reports that another
// goroutine runs the loop now.
func (s *Shard) workerTurn() (ran, relieved bool) {
	t := &s.inline
	if len(t.workers) == 0 {
		return false, false
	}
	now := s.engine.now()
	w := t.workers[0]
	t.workers = slices.Delete(t.workers, 0, 1)
	if !w.Quick(now) {
		t.leave(w)
		return true, false
	}
	t.current = w
	t.begin(now)
	more := w.Turn(s)
	if !t.end(now) {
		w.Ring() // for the rest
		return false, true
	}
	if more {
		t.workers = append(t.workers, w)
	}
	return true, false
}

// handBack leaves all pending turns to the workers' own goroutines.
func (t *inlineTurns) handBack() {
	for _, w := range t.workers {
		t.leave(w)
	}
	clear(t.workers)
	t.workers = t.workers[:0]
}

// leave leaves the turns of w to its own goroutine.
func (t *inlineTurns) leave(w *Worker) {
	w.Release(t.shard)
	w.Ring()
}

// begin notes that the loop begins a worker's turn, and starts the watch.
func (t *inlineTurns) begin(now ib.Instant) {
	t.since.Store(int64(now))
	if !t.watched.Swap(true) {
		t.watch.Reset(time.Duration(reliefAfter))
	}
}

// end ends a worker's turn, and reports whether the caller still runs the loop.
func (t *inlineTurns) end(began ib.Instant) bool { return t.since.CompareAndSwap(int64(began), 0) }

// look starts another goroutine for the loop if the worker's turn has taken reliefAfter.
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
		go t.shard.takeOver()
		rest = reliefAfter
	}
	t.watch.Reset(time.Duration(max(rest, 0)))
}

package roce

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/goroce/goroce/ib"
)

// A turn of a worker mostly takes less time than to wake its goroutine, and much longer only
// where memory is slow: a page must be fetched, or made. So a shard's loop takes the turn
// itself, as an errand: between two of its own turns, without the shard's lock. If the
// errand lasts, another goroutine goes on with the loop, as Go's scheduler does with the
// processor of a thread that is in a system call, and the one that is out only brings the
// errand to its end. A worker whose memory was slow stays on its own goroutine for some
// time, longer each time: a tenant can hold up the others for a small part of it only.

// reliefAfter is how long an errand lasts before somebody else takes the loop.
const reliefAfter = ib.Instant(2 * time.Millisecond)

// errands are those of a shard's loop.
type errands struct {
	shard   *shard
	home    bool      // the loop takes a turn of its own; guarded by the shard's mu
	workers []*Worker // that were given work since; the loop's

	out     atomic.Int64 // since when the loop is on an errand; 0: it is not
	watch   *time.Timer  // of out
	watched atomic.Bool  // watch runs
}

func (e *errands) init(s *shard) {
	e.shard = s
	e.watch = time.AfterFunc(time.Hour, e.look)
	e.watch.Stop()
}

// turnAtHome is a step of the loop, which runs the errands that it makes.
func (s *shard) turnAtHome(now ib.Instant) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.errands.home = true
	defer func() { s.errands.home = false }()
	return s.turn(now)
}

// send sees to it that w, which has work, takes a turn. The caller holds mu.
func (s *shard) send(w *Worker) {
	e := &s.errands
	switch {
	case !e.home || w.opts.Effort == nil:
		w.ring()
	case !slices.Contains(e.workers, w):
		e.workers = append(e.workers, w)
	}
}

// runErrand takes a turn of the worker that has waited longest. relieved says that the
// loop has another goroutine now.
func (s *shard) runErrand() (ran, relieved bool) {
	e := &s.errands
	if len(e.workers) == 0 {
		return false, false
	}
	now := s.dev.now()
	w := e.workers[0]
	e.workers = slices.Delete(e.workers, 0, 1)
	if !w.patience.has(now) {
		w.ring()
		return true, false
	}
	e.leave(now)
	more := w.turn()
	if !e.back(now) {
		w.ring() // for the rest
		return false, true
	}
	if more {
		e.workers = append(e.workers, w)
	}
	return true, false
}

// putOff leaves all errands to the goroutines of the workers.
func (e *errands) putOff() {
	for _, w := range e.workers {
		w.ring()
	}
	clear(e.workers)
	e.workers = e.workers[:0]
}

// leave says that the loop goes on an errand.
func (e *errands) leave(now ib.Instant) {
	e.out.Store(int64(now))
	if !e.watched.Swap(true) {
		e.watch.Reset(time.Duration(reliefAfter))
	}
}

// back ends an errand, and reports whether the loop is still the caller's.
func (e *errands) back(left ib.Instant) bool { return e.out.CompareAndSwap(int64(left), 0) }

// look finds out whether an errand lasts.
func (e *errands) look() {
	left := ib.Instant(e.out.Load())
	if left == 0 {
		e.watched.Store(false)
		if left = ib.Instant(e.out.Load()); left == 0 || e.watched.Swap(true) {
			return
		}
	}
	rest := left + reliefAfter - e.shard.dev.now()
	if rest <= 0 && e.back(left) {
		go e.shard.run()
		rest = reliefAfter
	}
	e.watch.Reset(time.Duration(max(rest, 0)))
}

// effort is what a thread has spent.
type effort struct {
	cpu    time.Duration
	sleeps uint64
}

// effort asks what this thread has spent so far.
func (w *Worker) effort() (e effort) {
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

package roce

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/goroce/goroce/ib"
)

// A turn of a worker mostly takes less time than to wake its goroutine, and longer only
// where memory makes it sleep. So a shard's loop takes it itself, as an errand: between
// two of its own turns, without the shard's lock. If the errand lasts, another goroutine
// goes on with the loop, as Go's scheduler does with the processor of a thread that is in a
// system call, and what is left to the one that is out is to bring the errand to its end.
// A worker whose memory has made somebody sleep stays on its own goroutine for some time:
// a tenant cannot hold up the others for more than a small part of it.

// reliefAfter is how long an errand lasts before somebody else takes the loop.
const reliefAfter = ib.Instant(2 * time.Millisecond)

// errands are those of a shard's loop.
type errands struct {
	shard   *shard
	home    bool      // the loop takes a turn of its own; guarded by the shard's mu
	workers []*Worker // that were given work since; the loop's
	out     atomic.Int64
	watched atomic.Bool
	watch   *time.Timer // of out, which is since when the loop is on an errand; 0: it is not
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
	case !e.home || w.opts.Slept == nil:
		w.ring()
	case !slices.Contains(e.workers, w):
		e.workers = append(e.workers, w)
	}
}

// runErrands takes a turn of each worker that has work. relieved says that the loop has
// another goroutine now.
func (s *shard) runErrands() (ran, relieved bool) {
	e := &s.errands
	for i := 0; i < len(e.workers); {
		now := s.dev.now()
		w := e.workers[i]
		if !w.patience.has(now) {
			w.ring()
		} else {
			e.leave(now)
			more := w.turn()
			if !e.back(now) {
				w.ring() // for the rest
				return false, true
			}
			if more {
				ran = true
				i++
				continue
			}
		}
		e.workers = slices.Delete(e.workers, i, i+1)
	}
	return ran, false
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

// patience is a shard's with a worker, whose memory makes threads sleep or does not.
type patience struct {
	lost  atomic.Int64 // until when
	spell ib.Instant   // for how long, the last time
}

// Bounds of the time for which patience is lost: twice as long each time that memory
// makes somebody sleep, unless it has not for patienceBack times as long.
const (
	leastSpell   = ib.Instant(10 * time.Millisecond)
	mostSpell    = ib.Instant(10 * time.Second)
	patienceBack = 16
)

func (p *patience) has(now ib.Instant) bool { return int64(now) >= p.lost.Load() }

// learn notes how often somebody has slept in the turn that ends now.
func (p *patience) learn(now ib.Instant, slept uint64) {
	if slept == 0 {
		return
	}
	if since := now - ib.Instant(p.lost.Load()); since > patienceBack*p.spell {
		p.spell = 0
	}
	p.spell = max(min(2*p.spell, mostSpell), leastSpell)
	p.lost.Store(int64(now + p.spell))
}

// slept asks how often this thread has slept.
func (w *Worker) slept() uint64 {
	if w.opts.Slept == nil {
		return 0
	}
	return w.opts.Slept()
}

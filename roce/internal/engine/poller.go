package engine

import (
	"runtime"
	"sync/atomic"
	"time"

	"github.com/goroce/goroce/ib"
)

// An application that polls an empty CQ drives the shard itself, on its own thread, which
// saves two thread switches for each message. The shard's goroutine (the loop) stands aside
// meanwhile: it waits and takes no turns. It resumes when no application polls any more.

const (
	// pollerGone is the minimum time without a poll after which the goroutine resumes. The
	// longer an application has polled, the less often the goroutine checks, at least every
	// pollerStays: each check wakes a thread, which slows the application down.
	pollerGone  = 50 * time.Microsecond
	pollerStays = 32 * pollerGone
)

// StandsAside reports whether the shard's goroutine leaves the turns to polling applications.
func (s *Shard) StandsAside() bool { return s.poller.aside.Load() }

// poller coordinates the shard's goroutine and the applications that poll.
type poller struct {
	wanted atomic.Bool   // an application polls, and the goroutine shall stand aside
	aside  atomic.Bool   // the goroutine stands aside
	polls  atomic.Uint32 // count of polls; it changes while an application polls
	back   chan struct{} // makes the goroutine resume early
	timer  *time.Timer   // used by the goroutine in standAside
}

func (p *poller) init() {
	p.back = make(chan struct{}, 1)
	p.timer = time.NewTimer(0)
	<-p.timer.C
}

// Polled counts a poll that found a completion: its application still polls.
func (s *Shard) Polled() {
	if p := &s.poller; p.aside.Load() {
		p.polls.Add(1)
	}
}

// LeavePolling makes the shard's goroutine resume: no application polls any more.
func (s *Shard) LeavePolling() {
	p := &s.poller
	p.wanted.Store(false)
	if p.aside.Load() {
		select {
		case p.back <- struct{}{}:
		default:
		}
	}
}

// standAside waits until no application polls any more.
func (s *Shard) standAside() {
	p := &s.poller
	p.aside.Store(true)
	defer p.aside.Store(false)
	seen := p.polls.Load()
	for look := pollerGone; ; look = min(2*look, pollerStays) {
		p.timer.Reset(look)
		select {
		case <-p.back:
			p.timer.Stop()
			return
		case <-p.timer.C:
		}
		polls := p.polls.Load()
		if polls == seen && s.mu.TryLock() { // a poller in the middle of a turn holds mu
			s.mu.Unlock()
			p.wanted.Store(false)
			return
		}
		seen = polls
	}
}

// Help takes a turn on the thread of a polling application, and reports whether the turn did
// anything.
func (s *Shard) Help() bool {
	if s.engine.opts.Manual {
		return false
	}
	p := &s.poller
	p.polls.Add(1)
	if !p.aside.Load() {
		p.wanted.Store(true)
		s.wake()
		runtime.Gosched() // the goroutine may need this thread to stand aside
		return false
	}
	if !s.mu.TryLock() {
		return false
	}
	busy, due := false, false
	if p.aside.Load() {
		now := s.engine.now()
		busy, due = s.turn(now), s.yield.due(now)
	}
	s.mu.Unlock()
	if due {
		runtime.Gosched()
	}
	return busy
}

// Ring rings the QP's doorbell for work that the next turn may do.
func (q *QP) Ring() { q.shard.ring(q) }

// Posted rings the QP's doorbell for new send requests. If the application drives the shard by
// polling, and nothing is in flight to the destination, Posted sends at once on the caller's
// thread, for latency. Likewise if short requests make a long run by themselves: the next turn would
// look for frames first. Otherwise requests gather until the next turn, and are sent in longer runs.
func (q *QP) Posted(wrs []ib.SendWR) {
	s := q.shard
	s.ring(q)
	if !s.poller.aside.Load() || !s.mu.TryLock() {
		return
	}
	defer s.mu.Unlock()
	if s.poller.aside.Load() && !s.closed && q.flow != nil && (longRun(wrs) || q.flow.account.Idle()) {
		s.clock()
		s.takeDoorbells()
		s.tx.drain()
	}
}

// longRun reports whether there are many requests, and the first one is short.
func longRun(wrs []ib.SendWR) bool {
	const many, short = 32, 512
	return len(wrs) >= many && len(wrs[0].SGL) <= 1 && (len(wrs[0].SGL) == 0 || wrs[0].SGL[0].Length <= short)
}

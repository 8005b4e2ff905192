package engine

import (
	"runtime"
	"sync/atomic"
	"time"
)

// An application that polls an empty CQ drives the shard itself, on its own
// thread: two hand-offs between threads less for each message. The shard's
// goroutine stands aside meanwhile, and takes over when nobody polls.

const (
	// pollerGone is how long nobody polls before the goroutine takes over, at the
	// least. It looks less often after one that polls for long, up to pollerStays: each
	// look wakes a thread, which is in the poller's way.
	pollerGone  = 50 * time.Microsecond
	pollerStays = 32 * pollerGone
)

// StandsAside reports whether the shard's goroutine leaves the work to who polls.
func (s *Shard) StandsAside() bool { return s.poller.aside.Load() }

// poller is the agreement between the shard's goroutine and who polls.
type poller struct {
	wanted atomic.Bool   // somebody polls and would drive
	aside  atomic.Bool   // the goroutine stands aside
	polls  atomic.Uint32 // goes on while somebody polls
	back   chan struct{} // ends standing aside early
	timer  *time.Timer   // the goroutine's
}

func (p *poller) init() {
	p.back = make(chan struct{}, 1)
	p.timer = time.NewTimer(0)
	<-p.timer.C
}

// Polled notes a poll that found something: who does so is still there.
func (s *Shard) Polled() {
	if p := &s.poller; p.aside.Load() {
		p.polls.Add(1)
	}
}

// LeavePolling says that nobody polls any more.
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

// standAside waits until nobody polls any more.
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
		if polls == seen && s.mu.TryLock() { // else it is in the middle of a turn
			s.mu.Unlock()
			p.wanted.Store(false)
			return
		}
		seen = polls
	}
}

// Help takes a turn on the thread of a polling application, and reports whether
// it could.
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

// Ring tells the shard of work that does not have to leave at once.
func (q *QP) Ring() { q.shard.ring(q) }

// Posted tells the shard of new send requests. An application that polls, and posts where
// nothing is in flight, waits for an answer: it sends on its own thread, at once. Otherwise
// requests gather until the next turn, and leave in longer runs.
func (q *QP) Posted() {
	s := q.shard
	s.ring(q)
	if !s.poller.aside.Load() || !s.mu.TryLock() {
		return
	}
	defer s.mu.Unlock()
	if s.poller.aside.Load() && !s.closed && q.flow != nil && q.flow.account.Idle() {
		s.clock()
		s.takeDoorbells()
		s.tx.drain()
	}
}

package engine

import (
	"errors"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/ib/driver"
	"github.com/goroce/goroce/roce/link"
)

// run drives the shard until the link is closed. When idle it spins for a short time, for
// latency, and then sleeps in Link.Wait. While an application polls, run leaves the turns to it.
// It returns early when a worker's turn took too long and another goroutine runs the loop now.
func (s *Shard) run() {
	debug.SetPanicOnFault(true) // see fault.go
	var spin spinner
	spin.init(s.engine.opts.Spin)
	for {
		if s.poller.wanted.Load() {
			s.inline.handBack()
			s.standAside()
			spin.reset()
			continue
		}
		now := s.engine.now()
		busy := s.ownTurn(now)
		if ran, relieved := s.workerTurn(); relieved {
			return
		} else if ran || busy {
			spin.busy(now)
			if s.yield.due(now) {
				runtime.Gosched()
			}
			continue
		}
		if spin.idle(now) && s.giveWay(now) {
			continue
		}
		if err := s.sleepSafely(now); err != nil {
			s.linkDown(err)
			s.end()
			s.engine.running.Done()
			return
		}
	}
}

// ownTurn takes a turn of the loop. Workers that get work in it (employ) take their turns on
// the loop's goroutine afterwards.
func (s *Shard) ownTurn(now ib.Instant) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.inline.own = true
	defer s.endTurn()
	return s.turn(now)
}

// endTurn ends a turn of the loop, and recovers if the turn panicked on a memory fault.
func (s *Shard) endTurn() {
	s.inline.own = false
	if v := recover(); v != nil {
		s.survive(v)
	}
}

// giveWay lets others run while the loop spins, and reports whether to look for work once
// more. Without clients in other processes it calls Gosched each time: goroutines that the shard
// has woken, or that wait for its mutex, are queued behind this one, and other threads take long
// to steal them. With such clients it is their processes that wait, possibly for this processor,
// and Gosched would wake a thread, so giveWay calls it only every few milliseconds.
func (s *Shard) giveWay(now ib.Instant) bool {
	remote := s.remoteDoorbells()
	if remote == nil || s.yield.due(now) {
		runtime.Gosched()
		return true
	}
	return remote.GiveWay()
}

// sleeper keeps the loop out of Link.Wait while another goroutine uses the link.
type sleeper struct {
	waiting sync.Mutex   // held while the loop is in Link.Wait; taken before the shard's mu
	wanted  atomic.Int32 // number of goroutines in holdSleep that want the mutex
}

// sleep waits for a frame, a doorbell, mail, an answer or a deadline. So that no wake-up is
// lost it first announces the sleep, as with the rings, and then looks for work once more.
func (s *Shard) sleep(now ib.Instant) error {
	s.doorbells.sleeping.Store(true)
	defer s.doorbells.sleeping.Store(false)
	if remote := s.remoteDoorbells(); remote != nil {
		defer func() { remote.Awake(s.engine.now()) }()
		if remote.Sleep() {
			return nil
		}
	}
	if s.sleeper.wanted.Load() > 0 {
		// The mutex is free, but the loop, which runs, would take it again before a
		// goroutine that has just been woken.
		runtime.Gosched()
		return nil
	}
	s.sleeper.waiting.Lock()
	defer s.sleeper.waiting.Unlock()
	wait, blocked := s.idle(now)
	if wait == 0 {
		return nil
	}
	return s.link.Wait(wait, blocked)
}

// holdSleep keeps the loop out of Link.Wait until releaseSleep: the caller sends meanwhile,
// under mu, and two goroutines must not use a Link at the same time.
func (s *Shard) holdSleep() {
	s.sleeper.wanted.Add(1)
	s.wake()
	s.sleeper.waiting.Lock()
	s.sleeper.wanted.Add(-1)
}

func (s *Shard) releaseSleep() { s.sleeper.waiting.Unlock() }

// idle returns how long the loop may wait: 0 if there is work now, negative for no limit.
// blocked reports that the loop also waits for the link to become writable.
func (s *Shard) idle(now ib.Instant) (wait time.Duration, blocked bool) {
	some := s.doorbells.some() || s.mail.some.Load() || s.answers.some.Load() || s.pulse.asked.Load() != nil
	s.mu.Lock()
	defer s.mu.Unlock()
	at := min(s.deadlines.earliest(), s.link.Deadline(), s.qp1.deadline(), s.tx.room.at)
	switch {
	case s.closed: // turns do nothing any more; the closed link ends the loop
		return -1, false
	case some, at <= now, s.unfinished(), !s.ready.empty() && !s.tx.blocked:
		return 0, false
	case at == driver.Never:
		return -1, s.tx.blocked
	}
	return time.Duration(at - now), s.tx.blocked
}

// unfinished reports whether a turn has left frames, doorbells or answers to the next one.
func (s *Shard) unfinished() bool {
	return s.rx.unfinished() || !s.ready.rung.empty() || s.answers.unfinished()
}

// linkDown reports to the owner that the link has failed, unless the owner closed the device.
func (s *Shard) linkDown(err error) {
	s.mu.Lock()
	closed := s.closed
	s.mu.Unlock()
	if !closed && !errors.Is(err, link.ErrClosed) {
		s.engine.owner.LinkDown(err)
	}
}

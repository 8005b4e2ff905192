package engine

import (
	"errors"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/link"
)

// run drives the shard until the link is closed. When idle it spins a little, for latency,
// then sleeps on the link. While an application polls it stands aside. It ends early when
// a worker's turn lasts too long, and another goroutine goes on.
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
			s.engine.running.Done()
			return
		}
	}
}

// ownTurn is a turn of the loop, which takes the turns itself of workers that it employs.
func (s *Shard) ownTurn(now ib.Instant) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.inline.own = true
	defer s.endTurn()
	return s.turn(now)
}

// endTurn ends a turn of the loop, whatever has become of it.
func (s *Shard) endTurn() {
	s.inline.own = false
	if v := recover(); v != nil {
		s.survive(v)
	}
}

// giveWay lets others run between two looks for work, and reports whether to look once
// more. For goroutines it does so each time: those that the shard has woken, or that wait
// for its mutex, are queued behind this one, and other threads take long to fetch them.
// With applications in other processes it is these that wait, for this processor even, and
// Gosched would wake a thread: now and then is enough.
func (s *Shard) giveWay(now ib.Instant) bool {
	remote := s.remoteDoorbells()
	if remote == nil || s.yield.due(now) {
		runtime.Gosched()
		return true
	}
	return remote.GiveWay()
}

// sleeper keeps the loop from waiting on its link while another goroutine uses the link.
type sleeper struct {
	waiting sync.Mutex   // held while the loop waits on the link; taken before the shard's mu
	wanted  atomic.Int32 // goroutines that want it
}

// sleep waits for a frame, a doorbell, mail, an answer or a deadline. The handshake is
// that of the rings: announce the sleep, then look once more.
func (s *Shard) sleep(now ib.Instant) error {
	s.doorbells.sleeping.Store(true)
	defer s.doorbells.sleeping.Store(false)
	if remote := s.remoteDoorbells(); remote != nil {
		defer func() { remote.Awake(s.engine.now()) }()
		if remote.Sleep() {
			return nil
		}
	}
	s.sleeper.waiting.Lock()
	defer s.sleeper.waiting.Unlock()
	if s.sleeper.wanted.Load() > 0 {
		return nil
	}
	wait, blocked := s.idle(now)
	if wait == 0 {
		return nil
	}
	return s.link.Wait(wait, blocked)
}

// holdSleep keeps the loop from waiting on the link until releaseSleep: the caller sends
// meanwhile, under mu, and a Link is not for two goroutines.
func (s *Shard) holdSleep() {
	s.sleeper.wanted.Add(1)
	s.wake()
	s.sleeper.waiting.Lock()
	s.sleeper.wanted.Add(-1)
}

func (s *Shard) releaseSleep() { s.sleeper.waiting.Unlock() }

// idle returns how long there is nothing to do: 0 if there is something, negative for no
// limit. blocked says that the link must become writable first.
func (s *Shard) idle(now ib.Instant) (wait time.Duration, blocked bool) {
	some := s.doorbells.some() || s.mail.some.Load() || s.answers.some.Load()
	s.mu.Lock()
	defer s.mu.Unlock()
	at := min(s.deadlines.earliest(), s.link.Deadline(), s.qp1.deadline())
	switch {
	case s.closed: // doorbells stay unanswered; the link ends the loop
		return -1, false
	case some, at <= now, !s.ready.empty() && !s.tx.blocked:
		return 0, false
	case at == ib.Never:
		return -1, s.tx.blocked
	}
	return time.Duration(at - now), s.tx.blocked
}

// linkDown tells the owner that the device is of no more use, unless it closed the device
// itself.
func (s *Shard) linkDown(err error) {
	s.mu.Lock()
	closed := s.closed
	s.mu.Unlock()
	if !closed && !errors.Is(err, link.ErrClosed) {
		s.engine.owner.LinkDown(err)
	}
}

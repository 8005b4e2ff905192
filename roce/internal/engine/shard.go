package engine

import (
	"runtime"
	"sync"
	"time"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/ib/driver"
	"github.com/goroce/goroce/qp"
	"github.com/goroce/goroce/roce/link"
)

// Shard is one loop over one link: it owns QPs, their timers and the congestion accounts of
// their destinations. All of it is guarded by mu, which the loop holds for a turn at a time;
// verbs that change a QP take it between turns. No goroutine holds the mu of two shards.
type Shard struct {
	engine *Engine
	id     int
	link   link.Link
	keeps  bool // the link does (link.Caps.Keeps)

	mu        sync.Mutex
	now       ib.Instant // of the turn or verb under way; never goes back
	limits    qp.Limits  // of the port's QPs
	qpns      *qpnTable
	deadlines deadlines
	ready     schedule // QPs that may have packets to send, and those whose doorbells have rung
	ahs       table[qp.AH]
	srqs      table[qp.SRQ]
	groups    map[ib.GID]group
	qp1       gsiQP
	due       qp.Due // CQs and SRQs with pending events
	rx        receiver
	tx        transmitter
	stats     Stats
	current   *QP // the QP that the turn is working on, for recovery from faults: see fault.go
	closed    bool
	visited   int // QPs that the present hold of mu, by Locked, InSteps or Each, has looked at
	longest   int // objects in one such hold

	doorbells doorbells
	mail      mailbox // runs that arrived by other shards' links
	answers   answers // results of workers
	inline    inlineTurns
	poller    poller
	pulse     pulse
	sleeper   sleeper
	yield     yieldTimer // of the goroutine that drives the shard
}

// ownLines is the least capacity of a shard's lists: 128 bytes, which the allocator begins at a cache line. Shorter
// ones of two shards may be in one line, for which their processors then compete (package device, TestSharedLines).
const ownLines = 16

func newShard(e *Engine, id int, l link.Link, shards int) *Shard {
	s := &Shard{engine: e, id: id, link: l, keeps: l.Caps().Keeps, limits: e.opts.Limits,
		qpns:   newQPNTable(e.opts.Rand, id, shards),
		ready:  newSchedule(),
		groups: map[ib.GID]group{}}
	s.limits.Recorders = qp.NewRecorders(recorders / shards)
	s.limits.Reorder = qp.NewReorder(shards)
	s.qp1.peers = &e.peers
	s.doorbells.ringing = s.ring
	s.doorbells.rung, s.doorbells.spare = make([]*QP, 0, ownLines), make([]*QP, 0, ownLines)
	s.deadlines = make(deadlines, 0, ownLines)
	s.poller.init()
	s.rx.init(s)
	s.tx.init(s)
	s.inline.init(s)
	s.doorbells.sleeping.Store(e.opts.Manual) // for good
	return s
}

// Number returns the shard's number.
func (s *Shard) Number() int { return s.id }

// Link returns the link that the shard runs on.
func (s *Shard) Link() link.Link { return s.link }

// Step takes one turn at now, of a shard without a loop. After a turn that did nothing the shard sleeps until the next
// step, as the loop does (sleep): applications in other processes then wake the link when they ring.
func (s *Shard) Step(now ib.Instant) (busy bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	remote := s.doorbells.remote
	if s.doorbells.announced {
		s.doorbells.announced = false
		remote.Awake(now)
	}
	busy = s.turn(now)
	if remote == nil || busy || s.closed {
		return busy
	}
	s.doorbells.announced = true
	return remote.Sleep()
}

// turn takes answers, receives, takes doorbells, runs timers and sends, each up to a bound; the next turn
// goes on from there. It reports whether anything happened. The caller holds mu. Answers come first:
// applications wait for them, and to look for frames takes a system call.
func (s *Shard) turn(now ib.Instant) bool {
	if s.pulse.asked.Load() != nil {
		s.beat()
	}
	if s.closed {
		return false
	}
	s.advance(now)
	s.judgeStall()
	s.tx.trim(s.now)
	busy := s.takeAnswers()
	if s.rx.receive(s.inline.own && s.inline.holds()) {
		busy = true
	}
	if s.takeDoorbells() {
		busy = true
	}
	if s.runTimers() {
		busy = true
	}
	return s.tx.drain() || busy
}

// stalled is how late a turn must be to be reported. Retries of peers last little longer than that: 1.9 s with the ACK
// timeout of rdma_cm on Ethernet.
const stalled = ib.Instant(time.Second)

// judgeStall reports that this turn is late. A deadline that has passed long ago shows it; a QP that has or had
// requests under way has one.
func (s *Shard) judgeStall() {
	if late := s.now - s.deadlines.earliest(); late >= stalled && s.engine.opts.OnStall != nil {
		s.engine.opts.OnStall(time.Duration(late))
	}
}

// advance moves the shard's time to now, never backwards. The caller has read the clock before
// it took the lock, so another turn may have advanced the time further meanwhile.
func (s *Shard) advance(now ib.Instant) { s.now = max(s.now, now) }

// clock advances the shard's time to the present and returns it, for verbs and within long
// turns. With Options.Manual and no clock that is the time of the last turn.
func (s *Shard) clock() ib.Instant {
	switch o := &s.engine.opts; {
	case !o.Manual:
		s.advance(s.engine.now())
	case o.Clock != nil:
		s.advance(o.Clock())
	}
	return s.now
}

func (s *Shard) runTimers() bool {
	busy := false
	for range TurnTimers {
		q := s.deadlines.pop(s.now)
		if q == nil {
			break
		}
		s.current = q
		if q.core.Deadline() <= s.now {
			q.core.HandleTimeout(s.now)
			busy = true
		}
		s.applyEffects(q)
	}
	return busy
}

// deadline returns when step must run next if nothing arrives and no doorbell rings.
func (s *Shard) deadline() ib.Instant {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return driver.Never
	}
	return min(s.deadlines.earliest(), s.link.Deadline(), s.qp1.deadline(), s.tx.room.at)
}

// Locked calls f between two turns, under the shard's lock.
func (s *Shard) Locked(f func()) {
	s.InSteps(func() (int, bool, bool) {
		f()
		return 0, true, true
	})
}

// InSteps calls step under the shard's lock until it is done, and returns its last result. step says how many objects
// it has looked at; the shard may take a turn between two steps.
func (s *Shard) InSteps(step func() (objects int, done, ok bool)) bool {
	for {
		if done, ok := s.lockedStep(step); done {
			return ok
		}
		runtime.Gosched() // the shard's loop may wait for the lock
	}
}

// lockedStep calls a step of InSteps, which may panic: memory that it touches may be an application's.
func (s *Shard) lockedStep(step func() (objects int, done, ok bool)) (done, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.visited = 0
	objects, done, ok := step()
	s.longest = max(s.longest, s.visited+objects)
	return done, ok
}

// LongestHold returns the largest number of objects that a call has looked at under the shard's lock at a time.
func (s *Shard) LongestHold() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.longest
}

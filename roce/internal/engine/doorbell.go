package engine

import (
	"sync"
	"sync/atomic"

	"github.com/goroce/goroce/ib"
)

// Doorbells reports the rung doorbells of QPs on one shard whose applications are in other processes. Package server
// implements it. One goroutine at a time calls its methods: that of the shard's loop, or one that drives the shard in
// its place (Shard.Help, QP.Posted, Engine.Step).
type Doorbells interface {
	// Take calls ring for each QP whose doorbell has rung since the last Take. now is the
	// shard's time.
	Take(now ib.Instant, ring func(*QP))
	// Sleep announces that the shard sleeps until its link is woken. It reports whether
	// doorbells have rung already: their clients will not wake the link.
	Sleep() (rung bool)
	// Awake announces that the shard is awake: it calls Take in each turn, and clients need
	// not wake the link.
	Awake(now ib.Instant)
	// GiveWay yields this processor to the applications' processes for a moment. It
	// reports false if the shard should sleep instead.
	GiveWay() bool
	// Faulted is called after another method has panicked because an application's memory
	// is not mapped (debug.SetPanicOnFault). It stops looking at that memory, and reports false if the fault was
	// not in such memory.
	Faulted() bool
}

// doorbells are the QPs of a shard that have work since its last turn.
type doorbells struct {
	remote  Doorbells // nil for none; guarded by the shard's mu
	ringing func(*QP) // Shard.ring

	sleeping  atomic.Bool // the loop sleeps: ring must wake the link
	announced bool        // remote knows that a shard without a loop sleeps; see Step

	mu    sync.Mutex
	rung  []*QP
	spare []*QP // what take has returned last
}

// SetDoorbells makes the shard look at d, from its next turn on. A doorbell that rings makes fd
// readable, which ends the shard's sleep. The caller owns fd and closes it after the engine. An
// error that matches errors.ErrUnsupported means that the link cannot watch fd.
func (s *Shard) SetDoorbells(d Doorbells, fd int) error {
	if err := s.link.Watch(fd); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.doorbells.remote = d
	return nil
}

func (s *Shard) remoteDoorbells() Doorbells {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.doorbells.remote
}

// ring puts q, which has new work, on the shard's list of rung doorbells and wakes the loop. Any
// goroutine may call it.
func (s *Shard) ring(q *QP) {
	if q.rung.Swap(true) {
		return
	}
	d := &s.doorbells
	d.mu.Lock()
	d.rung = append(d.rung, q)
	d.mu.Unlock()
	s.wake()
}

// wake ends the loop's sleep, if it sleeps.
func (s *Shard) wake() {
	if s.doorbells.sleeping.Load() {
		s.link.Wake()
	}
}

// some reports whether a doorbell of this process has rung.
func (d *doorbells) some() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.rung) > 0
}

// take returns the QPs whose doorbells have rung. The list is valid until the next take.
func (d *doorbells) take(now ib.Instant) []*QP {
	if d.remote != nil {
		d.remote.Take(now, d.ringing)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	clear(d.spare)
	d.rung, d.spare = d.spare[:0], d.rung
	return d.spare
}

func (s *Shard) takeDoorbells() bool {
	s.current = nil
	for _, q := range s.doorbells.take(s.now) {
		s.ready.ring(q)
	}
	busy := false
	for range TurnDoorbells {
		q := s.ready.answer()
		if q == nil {
			break
		}
		busy = true
		q.rung.Store(false)
		if q.core == nil { // closed
			continue
		}
		s.current = q
		if q.remote {
			q.core.Rearm()
		}
		q.core.Doorbell(s.now)
		s.applyEffects(q)
	}
	return busy
}

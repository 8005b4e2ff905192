package engine

import (
	"sync"
	"sync/atomic"

	"github.com/goroce/goroce/ib"
)

// Doorbells are those of QPs whose application is in another process. The shard calls them
// on the goroutine of its loop.
type Doorbells interface {
	// Take calls ring for each QP that has work since the last time. now is the shard's.
	Take(now ib.Instant, ring func(*QP))
	// Sleep announces that the shard sleeps until its link is woken, and reports
	// whether doorbells have rung that nobody would wake it for.
	Sleep() (rung bool)
	// Awake announces that the shard looks by itself.
	Awake(now ib.Instant)
	// GiveWay lets the applications' processes have this processor for a moment. It
	// reports false if the shard had better sleep.
	GiveWay() bool
	// Faulted is called after one of the others has touched memory of an application that
	// is not there, and ended in a panic. It looks at that no more, and reports false if
	// there is none such.
	Faulted() bool
}

// doorbells are the QPs of a shard that have work since its last turn.
type doorbells struct {
	remote  Doorbells // nil for none; guarded by the shard's mu
	ringing func(*QP) // Shard.ring

	sleeping atomic.Bool // whoever rings wakes the link

	mu    sync.Mutex
	rung  []*QP
	spare []*QP // the other buffer of rung
}

// SetDoorbells makes the shard look at d, from its next turn on. What ends the shard's sleep
// when a doorbell rings is fd, which becomes readable then; it stays the caller's, who
// closes it after the engine. An error that matches errors.ErrUnsupported says that the
// link cannot look at it.
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

// ring tells the shard that q has new work. Any goroutine may call it.
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

// wake ends the loop's sleep: there is something to do.
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

// take returns the QPs whose doorbells have rung. The list is the shard's until the next
// take.
func (d *doorbells) take(now ib.Instant) []*QP {
	if d.remote != nil {
		d.remote.Take(now, d.ringing)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	rung := d.rung
	d.rung, d.spare = d.spare[:0], rung
	return rung
}

// again puts back what take has returned and nobody has looked at.
func (d *doorbells) again() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for i, q := range d.spare {
		if q != nil {
			d.spare[i] = nil
			d.rung = append(d.rung, q)
		}
	}
}

func (s *Shard) takeDoorbells() bool {
	s.hand = nil
	rung := s.doorbells.take(s.now)
	for i, q := range rung {
		rung[i] = nil
		q.rung.Store(false)
		if q.core == nil { // closed
			continue
		}
		s.hand = q
		if q.remote {
			q.core.Rearm()
		}
		q.core.Doorbell(s.now)
		s.after(q)
	}
	return len(rung) > 0
}

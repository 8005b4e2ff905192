package roce

import (
	"runtime"
	"sync/atomic"
	"time"

	"github.com/goroce/goroce/ib"
)

// An application that polls an empty CQ drives the shard itself, on its own
// thread: two hand-offs between threads less for each message. The shard's
// goroutine stands aside meanwhile, and takes over when nobody polls.

const (
	// emptyPolls is how many polls in a row find nothing before one drives the
	// shard: who polls now and then is not worth making room for.
	emptyPolls = 4
	// pollerGone is how long after the last poll the goroutine takes over, at the
	// least. It looks less often at one that polls for long, up to pollerStays: each
	// look wakes a thread, which is in the poller's way.
	pollerGone  = 50 * time.Microsecond
	pollerStays = 8 * pollerGone
)

// poller is the agreement between the shard's goroutine and who polls.
type poller struct {
	last  atomic.Int64  // ib.Instant of the latest poll that drove the shard, or wanted to; 0 if none
	aside atomic.Bool   // the goroutine stands aside
	back  chan struct{} // ends that early
	timer *time.Timer   // the goroutine's
}

func (p *poller) init() {
	p.back = make(chan struct{}, 1)
	p.timer = time.NewTimer(0)
	<-p.timer.C
}

// active reports whether somebody polls.
func (p *poller) active(now ib.Instant) bool {
	last := p.last.Load()
	return last != 0 && now-ib.Instant(last) < ib.Instant(pollerGone)
}

// standAside waits until the poller is gone.
func (p *poller) standAside(now func() ib.Instant) {
	p.aside.Store(true)
	defer p.aside.Store(false)
	for look := pollerGone; p.active(now()); look = min(2*look, pollerStays) {
		p.timer.Reset(look)
		select {
		case <-p.back:
			p.timer.Stop()
			return
		case <-p.timer.C:
		}
	}
}

// leave says that nobody polls any more.
func (p *poller) leave() {
	p.last.Store(0)
	if p.aside.Load() {
		select {
		case p.back <- struct{}{}:
		default:
		}
	}
}

// help takes a turn on the thread of a polling application, and reports whether
// it could.
func (s *shard) help() bool {
	if s.dev.opts.Manual {
		return false
	}
	now := s.dev.now()
	s.poller.last.Store(int64(now))
	if !s.poller.aside.Load() {
		if s.sleeping.Load() {
			s.link.Wake()
		}
		runtime.Gosched() // the goroutine may need this thread to stand aside
		return false
	}
	if !s.mu.TryLock() {
		return false
	}
	defer s.mu.Unlock()
	return s.poller.aside.Load() && s.turn(now)
}

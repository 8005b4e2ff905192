package simtest

import (
	"cmp"
	"fmt"
	"sync"
	"testing/synctest"
	"time"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/ib/driver"
)

// loop moves a simulation on. At each instant it lets the hosts take turns until none has anything to do. Then it waits
// for the next deadline of a host, or for a goroutine that posts a request.
//
// synctest.Wait returns when all other goroutines wait. The loop calls it after each turn that did something, so that
// no goroutine runs while a device takes a turn, and what they post does not depend on who is faster.
type loop struct {
	rung  chan struct{} // has a token when a device has been given work
	stop  chan struct{}
	ended chan struct{}

	mu      sync.Mutex
	turning bool     // a device takes a turn
	told    []func() // to call after it
}

func (l *loop) init() {
	l.rung = make(chan struct{}, 1)
	l.stop, l.ended = make(chan struct{}), make(chan struct{})
}

// ring makes the loop look at the hosts.
func (l *loop) ring() {
	select {
	case l.rung <- struct{}{}:
	default:
	}
}

// tells keeps a function until the device that takes a turn has taken it. It reports whether there is one.
func (l *loop) tells(f func()) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.turning {
		l.told = append(l.told, f)
	}
	return l.turning
}

// begin begins a turn of a device.
func (l *loop) begin() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.turning = true
}

// over ends it, and calls what was kept.
func (l *loop) over() {
	l.mu.Lock()
	told := l.told
	l.turning, l.told = false, nil
	l.mu.Unlock()
	for _, f := range told {
		f()
	}
}

// end ends the loop and returns when it has ended.
func (l *loop) end() {
	close(l.stop)
	<-l.ended
}

// turnsMost bounds the turns that the loop takes at one instant.
const turnsMost = 1_000_000

func (n *Net) run() {
	defer close(n.loop.ended)
	timer := time.NewTimer(0)
	defer timer.Stop()
	at, turns := n.Now(), 0
	for {
		synctest.Wait()
		if now := n.Now(); now != at {
			at, turns = now, 0
		}
		if limit := cmp.Or(n.config.Limit, DefaultLimit); time.Duration(at) > limit {
			panic(fmt.Sprintf("simtest: %s has not ended after %v of virtual time; the last packets with "+
				"-simtest.seed=%d:\n%s", n.t.Name(), limit, n.config.Seed, n.record.ladder(n)))
		}
		if turns++; turns == turnsMost {
			panic(fmt.Sprintf("simtest: after %d turns at %v there is still something to do: does a goroutine post "+
				"requests in a loop, without waiting for time to pass?", turns, time.Duration(at)))
		}
		if n.turn() {
			continue
		}
		if at := n.deadline(); at != driver.Never {
			timer.Reset(max(time.Duration(at-n.Now()), 0))
		} else {
			timer.Stop()
		}
		select {
		case <-timer.C:
		case <-n.loop.rung:
		case <-n.loop.stop:
			return
		}
	}
}

// turn lets each host take a turn. It reports whether one of them did something.
func (n *Net) turn() (busy bool) {
	for _, h := range n.Hosts {
		n.loop.begin()
		some := h.step()
		n.loop.over()
		if some {
			busy = true
			synctest.Wait()
		}
	}
	return busy
}

// deadline returns when a host has something to do if nobody posts anything before.
func (n *Net) deadline() ib.Instant {
	n.mu.Lock()
	defer n.mu.Unlock()
	at := driver.Never
	for _, h := range n.Hosts {
		at = min(at, h.deadline())
	}
	return at
}

//go:build linux

// Package yield lets a polling client and the daemon, the two ends of shared rings, share a
// processor: each yields it between two polls.
package yield

import (
	"time"

	"golang.org/x/sys/unix"
)

// long is the duration from which a yield counts as too long. sched_yield(2) gives up the
// thread's claim on the processor (EEVDF): if other programs compute there, they get it for a
// time slice, which is milliseconds. Then it is better to be preempted as usual, or to sleep, as
// a thread that is woken runs soon.
const long = 200 * time.Microsecond // longer than the partner's poll takes

// Bounds of the rest, the time without yielding after a long yield. It doubles with each long
// yield, and starts again if the last rest ended more than restsBack times its length ago.
const (
	leastRest = time.Millisecond
	mostRest  = 64 * time.Millisecond
	restsBack = 16
)

// Yielder yields the processor. The zero value is ready for use, by one goroutine.
type Yielder struct {
	next time.Duration // earliest time of the next yield, on clock
	rest time.Duration // the latest rest
}

// clock is on the hot path, so it does not call time.Now, which reads two clocks.
func clock() time.Duration { return time.Since(start) }

var start = time.Now()

// Yield gives the processor to a thread that waits for it. It returns false after a long yield,
// and also, without yielding, during the rest that follows.
func (y *Yielder) Yield() bool {
	began := clock()
	if began < y.next {
		return false
	}
	_, _, _ = unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0)
	return y.took(began, clock())
}

// took evaluates a yield from began to ended, and sets the rest if it was long.
func (y *Yielder) took(began, ended time.Duration) bool {
	if ended-began < long {
		return true
	}
	if began-y.next > restsBack*y.rest {
		y.rest = 0
	}
	y.rest = max(min(2*y.rest, mostRest), leastRest)
	y.next = ended + y.rest
	return false
}

// Resting reports whether the rest after a long yield goes on. A thread that has nothing to do but to poll again should
// sleep then (Naps): what it would spend on polling is what the daemon lacks.
func (y *Yielder) Resting() bool { return clock() < y.next }

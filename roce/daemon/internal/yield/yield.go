//go:build linux

// Package yield is how the two ends of shared rings, a polling client and the daemon, share
// a processor: each gives way between two looks for work.
package yield

import (
	"time"

	"golang.org/x/sys/unix"
)

// To yield is to give up one's claim on the processor (EEVDF): where other programs compute
// on it, it is gone for a time slice, milliseconds. Then it is better to be taken off in
// the usual way, or to sleep: who is woken is soon run.
const long = 200 * time.Microsecond // more than a partner takes for its look

// Bounds of the time without yielding: twice as long each time that one takes long, unless
// that has not been for restsBack times as long.
const (
	leastRest = time.Millisecond
	mostRest  = 64 * time.Millisecond
	restsBack = 16
)

// Yielder gives way. The zero value does from the start. It is for one goroutine.
type Yielder struct {
	next time.Duration // when it may again, on clock
	rest time.Duration // the last one
}

// clock is read more often than anything else here; time.Now would read two clocks.
func clock() time.Duration { return time.Since(start) }

var start = time.Now()

// Yield gives the processor to a thread that waits for it. It returns false, and mostly
// does nothing, where other programs keep it for long at present.
func (y *Yielder) Yield() bool {
	began := clock()
	if began < y.next {
		return false
	}
	_, _, _ = unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0)
	return y.took(began, clock())
}

// took judges a yield.
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

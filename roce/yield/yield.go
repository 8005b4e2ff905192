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
const (
	long = 200 * time.Microsecond // more than a partner takes for its look
	rest = 50 * time.Millisecond  // without yielding, when it took so long
)

// Yielder gives way. The zero value does from the start. It is for one goroutine.
type Yielder struct{ next time.Time }

// Yield gives the processor to a thread that waits for it. It returns false, and mostly
// does nothing, where other programs keep it for long at present.
func (y *Yielder) Yield() bool {
	began := time.Now()
	if began.Before(y.next) {
		return false
	}
	_, _, _ = unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0)
	return y.took(began, time.Now())
}

// took judges a yield.
func (y *Yielder) took(began, ended time.Time) bool {
	if ended.Sub(began) < long {
		return true
	}
	y.next = ended.Add(rest)
	return false
}

package perf

import (
	"testing"
	"time"
)

// TestPatience counts the time in which nothing was found, from when the peer was done, but not the time in which the
// process did not run.
func TestPatience(t *testing.T) {
	var p patience
	now := time.Unix(1, 0)
	peer := here
	after := func(d, want time.Duration) {
		t.Helper()
		now = now.Add(d)
		if p.look(now, peer); p.quiet != want {
			t.Errorf("nothing was found for %v, want %v", p.quiet, want)
		}
	}
	after(time.Hour, 0)
	after(10*time.Millisecond, 10*time.Millisecond)
	after(time.Hour, 10*time.Millisecond+nap)
	peer = ahead
	after(nap, 0)
	after(nap, nap)
	p.hit()
	after(time.Hour, 0)
}

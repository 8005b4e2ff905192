//go:build linux

package yield

import (
	"testing"
	"time"
)

// TestNaps: who polls two queues sleeps at one of them, and at the other when the first has had no nap for long.
func TestNaps(t *testing.T) {
	var n Naps
	const now = 10 * mostRest
	for _, step := range []struct {
		what  string
		queue int
		after time.Duration
		due   bool
	}{
		{"the first", 1, 0, true},
		{"at the same queue", 1, 1, true},
		{"at another", 2, leastRest - 1, false},
		{"at another, later", 2, leastRest, true},
	} {
		if got := n.due(step.queue, now+step.after); got != step.due {
			t.Errorf("%s: %v, want %v", step.what, got, step.due)
		}
		if step.queue == 1 {
			n.ended(step.queue, now)
		}
	}
}

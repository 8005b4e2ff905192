package sock

import (
	"testing"

	"golang.org/x/sys/unix"
)

// TestGauge: the kernel is asked when receives have left messages while a sixteenth of the buffer was taken out, and
// not while they leave none. To ask does not allocate.
func TestGauge(t *testing.T) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = unix.Close(fds[0]), unix.Close(fds[1]) })
	g := NewGauge(fds[1]) // nothing waits there
	full := g
	full.high = true
	for _, c := range []struct {
		name     string
		gauge    Gauge
		messages int
		bytes    int
		left     bool
		want     bool
	}{
		{"emptied", full, 1, 1000, false, false},
		{"emptied, a full one", g, 100, g.size/2 + 1, false, true},
		{"soon after it was full", full, 1, 1000, true, true},
		{"some are left", full, 10, g.size/16 + 1, true, false},
		{"long messages", full, 4, g.size/2 + 1, true, false},
		{"none", full, 0, 0, false, false},
	} {
		if got := c.gauge.Took(c.messages, c.bytes, c.left); got != c.want {
			t.Errorf("%s: got %v, want %v", c.name, got, c.want)
		}
	}
	if n := testing.AllocsPerRun(100, func() { g.Took(100, g.size, true) }); n != 0 {
		t.Errorf("got %v allocations, want none", n)
	}
}

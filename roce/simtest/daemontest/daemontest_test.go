package daemontest_test

import (
	"bytes"
	"testing"
	"time"

	"github.com/goroce/goroce/roce/daemon/server"
	"github.com/goroce/goroce/roce/link/wrap"
	"github.com/goroce/goroce/roce/simtest"
	"github.com/goroce/goroce/roce/simtest/daemontest"
	"github.com/goroce/goroce/tests/require"
	"github.com/goroce/goroce/tests/toolstest"
)

// bad is a network on which everything happens to packets.
var bad = wrap.FaultConfig{Drop: 0.03, Duplicate: 0.02, Reorder: 0.02, Delay: 0.05, Corrupt: 0.01, Truncate: 0.01,
	MaxDelay: time.Millisecond, Latency: 50 * time.Microsecond, Jitter: 10 * time.Microsecond, Rate: 1e9}

var options = server.Options{OwnProcesses: true}

// TestRepeats: with one seed the packets between clients of two daemons are the same, at the same times; with another
// one they are not.
func TestRepeats(t *testing.T) {
	require.NoRace(t, "the race detector makes the Go scheduler choose at random")
	data := bytes.Repeat([]byte("RDMA anywhere. "), 10_000)
	run := func(t *testing.T, seed uint64) string {
		var net *simtest.Net
		simtest.Run(t, simtest.Config{Seed: seed, Fault: bad}, func(t *testing.T, n *simtest.Net) {
			net = n
			a, b := daemontest.Start(t, n.Hosts[0], options), daemontest.Start(t, n.Hosts[1], options)
			toolstest.Echo(t, a.CM(t), b.CM(t), n.Hosts[1].At("7471"), data)
		})
		return net.Digest()
	}
	seen := map[string]uint64{}
	for seed := uint64(1); seed <= 10; seed++ {
		first := run(t, seed)
		again := run(t, seed)
		for range 2 { // the operating system may have held up one of them
			if again != first {
				first, again = again, run(t, seed)
			}
		}
		if again != first {
			t.Errorf("seed %d: the packets of each of four runs are %v, want %v as in the run before", seed, again,
				first)
		}
		if other := seen[first]; other != 0 {
			t.Errorf("seeds %d and %d: the packets are the same, want others", other, seed)
		}
		seen[first] = seed
	}
}

package daemontest_test

import (
	"bytes"
	"io"
	"testing"
	"time"

	"github.com/goroce/goroce/roce/daemon/server"
	"github.com/goroce/goroce/roce/link/wrap"
	"github.com/goroce/goroce/roce/rdmacm"
	"github.com/goroce/goroce/roce/rsocket"
	"github.com/goroce/goroce/roce/simtest"
	"github.com/goroce/goroce/roce/simtest/daemontest"
	"github.com/goroce/goroce/tests/require"
)

// bad is a network on which everything happens to packets.
var bad = wrap.FaultConfig{Drop: 0.03, Duplicate: 0.02, Reorder: 0.02, Delay: 0.05, Corrupt: 0.01, Truncate: 0.01,
	MaxDelay: time.Millisecond, Latency: 50 * time.Microsecond, Jitter: 10 * time.Microsecond, Rate: 1e9}

var options = server.Options{OwnProcesses: true}

// transfer sends data from a to a listener of b, which returns it, over a stream.
func transfer(t *testing.T, a, b *rdmacm.CM, to string, data []byte) {
	l, err := rsocket.Listen(t.Context(), b, to, rsocket.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		_, _ = io.Copy(conn, conn)
	}()
	conn, err := rsocket.Dial(t.Context(), a, to, rsocket.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	go func() {
		_, _ = conn.Write(data)
		_ = conn.CloseWrite()
	}()
	if got, err := io.ReadAll(conn); err != nil || !bytes.Equal(got, data) {
		t.Errorf("got %d bytes back, %v; want %d, as they were sent", len(got), err, len(data))
	}
}

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
			transfer(t, a.CM(t), b.CM(t), n.Hosts[1].At("7471"), data)
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
			t.Errorf("seed %d: the packets of each of four runs differ from those of the run before", seed)
		}
		if other := seen[first]; other != 0 {
			t.Errorf("seeds %d and %d: the packets are the same", other, seed)
		}
		seen[first] = seed
	}
}

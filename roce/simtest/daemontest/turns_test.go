package daemontest_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/goroce/goroce/roce/link/wrap"
	"github.com/goroce/goroce/roce/rdmacm"
	"github.com/goroce/goroce/roce/rsocket"
	"github.com/goroce/goroce/roce/simtest"
	"github.com/goroce/goroce/roce/simtest/daemontest"
	"github.com/goroce/goroce/tests/require"
)

// pour sends to a listener of b, over a number of streams of one client of a, until the end of the test, and counts
// what arrives.
func pour(t *testing.T, n *simtest.Net, a, b *rdmacm.CM, streams int, arrived *atomic.Int64) {
	t.Helper()
	for range streams {
		l, err := rsocket.Listen(t.Context(), b, n.Hosts[1].At("0"), rsocket.Options{})
		must(t, err)
		go func() {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			buf := make([]byte, 64<<10)
			for err == nil {
				var got int
				got, err = conn.Read(buf)
				arrived.Add(int64(got))
			}
			_ = conn.Close()
		}()
		conn, err := rsocket.Dial(t.Context(), a, l.Addr().String(), rsocket.Options{})
		must(t, err)
		t.Cleanup(func() { _, _ = conn.Close(), l.Close() })
		go func() {
			for err := error(nil); err == nil; {
				_, err = conn.Write(make([]byte, 64<<10))
			}
		}()
	}
}

// TestTurns: of a link that is too slow for both, a client with one QP gets as much as one with eight, and not a ninth.
// Losses are not shared evenly in a few seconds, so a third of the link is enough.
func TestTurns(t *testing.T) {
	require.NoRace(t, "when the Go scheduler chooses at random, losses are shared less evenly")
	const rate, seconds = 200e6, 5
	c := simtest.Config{Fault: wrap.FaultConfig{Rate: rate, Buffer: 5 * time.Millisecond}}
	pair(t, c, func(t *testing.T, n *simtest.Net, a, b *daemontest.Daemon) {
		var one, eight atomic.Int64
		pour(t, n, a.CM(t), b.CM(t), 1, &one)
		pour(t, n, a.CM(t), b.CM(t), 8, &eight)
		time.Sleep(time.Second)
		one.Store(0)
		eight.Store(0)
		time.Sleep(seconds * time.Second)
		got, others := one.Load(), eight.Load()
		if sum := float64(got + others); sum < 0.9*rate/8*seconds || float64(got) < sum/3 {
			t.Errorf("one QP got %d bytes, eight got %d; want a third at least for the one, and %v together", got,
				others, rate/8*seconds)
		}
	})
}

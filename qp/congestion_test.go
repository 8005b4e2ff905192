package qp

import (
	"fmt"
	"testing"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/tests/require"
)

// carried returns which part of a bottleneck's rate the payload and headers of the messages from first on have filled.
func carried(x *devices, l load, first int, rate float64) float64 {
	p := x.pairs[0]
	bytes := float64((l.n-first)*l.size) / 1024 * (1024 + packetOverhead)
	return bytes / rate / float64(p.done[l.n-1]-p.done[first-1])
}

// TestBottleneck: a single QP fills a bottleneck whose queue holds what the path holds, after slow start; with
// shorter queues it fills what the table says.
func TestBottleneck(t *testing.T) {
	require.NoRace(t, "millions of packets")
	for _, c := range []struct {
		op     ib.WROpcode
		buffer float64 // of the path's bandwidth-delay product
		goal   float64
	}{
		{ib.WRWrite, 0.25, 0.85}, {ib.WRWrite, 1, 0.95}, {ib.WRWrite, 4, 0.95},
		{ib.WRRead, 0.25, 0.6}, {ib.WRRead, 1, 0.85}, {ib.WRRead, 4, 0.95},
	} {
		for _, rtt := range []ib.Instant{ms / 5, 2 * ms, 20 * ms} {
			const rate = 0.125 // bytes per nanosecond
			if rtt == 20*ms && c.buffer < 1 {
				continue // CUBIC takes ten seconds to find its window
			}
			net := network{oneWay: rtt / 2, rate: rate, buffer: ib.Instant(float64(rtt) * c.buffer)}
			t.Run(fmt.Sprintf("%v/rtt=%dus/buffer=%.2f", c.op, rtt/1000, c.buffer), func(t *testing.T) {
				t.Parallel()
				x := newDevices(t, net, 1, 1)
				sacks(x)
				l := load{op: c.op, size: min(max(int(float64(rtt)*rate/4), 32<<10), 512<<10), depth: hostEntries}
				l.n = int(float64(min(2000*ms, 500*rtt)) * rate / float64(l.size))
				x.run(l)
				got := carried(x, l, l.n/3, rate)
				if t.Logf("%.3f of the link", got); got < c.goal {
					t.Errorf("got %.3f of the link, want %.2f", got, c.goal)
				}
			})
		}
	}
}

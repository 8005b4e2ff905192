package qp

import (
	"flag"
	"fmt"
	"slices"
	"testing"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/tests/require"
)

var congestionAll = flag.Bool("congestion.all", false,
	"test congestion control at all rates, round trips and queues: half an hour")

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
		others float64 // goal with other rates and round trips
	}{
		{ib.WRWrite, 0.1, 0.65, 0.55}, {ib.WRWrite, 0.25, 0.85, 0.75}, {ib.WRWrite, 1, 0.95, 0.9},
		{ib.WRWrite, 4, 0.95, 0.95},
		{ib.WRRead, 0.1, 0.7, 0.4}, {ib.WRRead, 0.25, 0.92, 0.68}, {ib.WRRead, 1, 0.95, 0.8},
		{ib.WRRead, 4, 0.95, 0.95},
	} {
		for _, rate := range []float64{0.0125, 0.125, 0.625} { // bytes per nanosecond
			for _, rtt := range []ib.Instant{ms / 5, 2 * ms, 20 * ms, 100 * ms} {
				holds := rate * float64(rtt)
				plain := rate == 0.125 && rtt <= 20*ms && (rtt < 20*ms || c.buffer >= 1)
				switch {
				case !*congestionAll && !plain:
					continue // CUBIC takes ten seconds to find its window
				case c.op == ib.WRRead && holds > 8<<20:
					continue // sixteen READs are not as much
				case holds > cwndMax*1024 || holds*c.buffer < 4096:
					continue // no window is as large, or no train of packets as short
				}
				net := network{oneWay: rtt / 2, rate: rate, buffer: ib.Instant(float64(rtt) * c.buffer)}
				name := fmt.Sprintf("%v/%.0fMb/rtt=%dus/buffer=%.2f", c.op, rate*8000, rtt/1000, c.buffer)
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					x := newDevices(t, net, 1, 1)
					sacks(x)
					l := load{op: c.op, size: min(max(int(holds/4), 32<<10), 512<<10), depth: hostEntries}
					end := min(2000*ms, 500*rtt)
					if rtt >= 20*ms && *congestionAll {
						end = 15_000 * ms
					}
					l.n = max(int(float64(end)*rate/float64(l.size)), 30)
					x.run(l)
					got := carried(x, l, l.n/3, rate)
					goal := c.goal
					if !plain {
						goal = c.others
					}
					if t.Logf("%s: %.3f of the link", name, got); got < goal {
						t.Errorf("got %.3f of the link, want %.2f", got, goal)
					}
				})
			}
		}
	}
}

// incast has senders that begin at one instant, and so many bytes of queue in front of the receiver.
type incast struct{ senders, buffer int }

func incasts() []incast {
	if require.Rounds(1, 2) == 1 {
		return []incast{{16, 64 << 10}, {16, 1 << 20}, {64, 64 << 10}}
	}
	var all []incast
	for _, senders := range []int{16, 64, 100} {
		for _, buffer := range []int{64 << 10, 256 << 10, 1 << 20} {
			all = append(all, incast{senders, buffer})
		}
	}
	return all
}

// TestIncast: many senders into one, which begin at one instant. They fill the bottleneck in front of it, no QP
// fails, and none is without progress for long. Hosts are not clocks, so packets are up to 10 us late; else those
// that a packet from the queue brings forth would always be the first to find its place free
// (Floyd, Jacobson: On Traffic Phase Effects in Packet-Switched Gateways, 1992).
func TestIncast(t *testing.T) {
	require.NoRace(t, "millions of packets")
	for _, c := range incasts() {
		t.Run(fmt.Sprintf("%d/%dK", c.senders, c.buffer>>10), func(t *testing.T) {
			t.Parallel()
			var shares []float64
			for seed := range uint64(require.Rounds(1, 3)) {
				shares = append(shares, c.play(t, seed+1))
			}
			slices.Sort(shares)
			if median := shares[len(shares)/2]; median < 0.9 {
				t.Errorf("got %.3f of the link, want 0.9: the median of %.3f", median, shares)
			}
		})
	}
}

// play returns the share of the link. With many senders and a short queue the last one may finish long after the rest.
func (c incast) play(t *testing.T, seed uint64) float64 {
	const rate = 0.125
	x := newSenders(t, c.senders, network{oneWay: ms / 40, rate: rate, buffer: ib.Instant(c.buffer * 8),
		jitter: ms / 100}, seed)
	l := load{op: ib.WRWrite, size: 64 << 10, depth: 32, n: 1600 / c.senders}
	x.run(l)
	longest := ib.Instant(0)
	for i, p := range x.pairs {
		if p.failed != ib.WCSuccess {
			t.Errorf("seed %d, sender %d: got %v after %d requests, want success", seed, i, p.failed, len(p.done))
		}
		longest = max(longest, p.stuck)
	}
	share := float64(l.n*c.senders*l.size) / 1024 * (1024 + packetOverhead) / rate / float64(x.now)
	t.Logf("seed %d: %.3f of the link, no progress for %d ms at most, %d packets lost", seed, share, longest/ms,
		x.forth.full)
	if longest > 300*ms {
		t.Errorf("seed %d: no progress for %d ms, want at most 300", seed, longest/ms)
	}
	return share
}

// TestSocketBuffer: the socket buffer of an ordinary user, 208 KiB, is the only queue: it holds 90 packets, as each
// takes 2,304 bytes of it. WRITEs of many senders carry as much as those of one, READs of many as much as those of one,
// and few packets are lost: of 16 that begin at one instant with 16 packets each, what the buffer does not hold.
func TestSocketBuffer(t *testing.T) {
	require.NoRace(t, "millions of packets")
	const rate, messages, most = 1.25, 6400, 0.1
	for _, op := range []ib.WROpcode{ib.WRWrite, ib.WRRead} {
		var alone ib.Instant
		for _, senders := range []int{1, 4, 16} {
			x := newSenders(t, senders, network{oneWay: ms / 40, rate: rate, jitter: ms / 200, socket: true,
				buffer: ib.Instant(90 * (1024 + packetOverhead) / rate)}, 1)
			for _, p := range x.pairs {
				p.far = op == ib.WRRead
			}
			x.run(load{op: op, size: 64 << 10, depth: 16, n: messages / senders})
			if senders == 1 {
				alone = x.now
			}
			got, lost := float64(alone)/float64(x.now), 100*float64(x.forth.full)/(messages*64)
			t.Logf("%v, %d senders: %.2f of what one carries, %.3f %% of the packets are lost", op, senders, got, lost)
			if got < 0.9 || lost > most {
				t.Errorf("%v, %d senders: got %.2f of what one carries and %.3f %% lost, want 0.9 and at most %.1f", op,
					senders, got, lost, most)
			}
		}
	}
}

// newSenders returns devices of which each sends by itself, with its own Flow, into the same network.
func newSenders(t *testing.T, n int, net network, seed uint64) *devices {
	x := newDevices(t, net, n, seed)
	for _, p := range x.pairs {
		f := NewFlow(FlowConfig{})
		f.SetSelective(true)
		p.b.flow.SetSelective(true)
		p.a.q.SetFlow(f)
		x.senders = append(x.senders, f)
	}
	return x
}

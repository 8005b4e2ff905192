package qp

import (
	"fmt"
	"testing"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/tests/require"
)

// beside is how many flows of ours and of others share a bottleneck of 1 Gb/s.
type beside struct {
	neighbour    func() tcpControl
	rtt          ib.Instant
	buffer       float64 // of the path's bandwidth-delay product
	ours, theirs int
	long         bool
}

// shares returns what a flow of ours and one of the others has, on the average, as a part of what is fair. instead puts
// TCP CUBIC in the place of ours.
func (b beside) shares(t *testing.T, instead bool) (ours, theirs float64) {
	const rate, apart = 0.125, 17 * ms
	net := network{oneWay: b.rtt / 2, rate: rate, buffer: ib.Instant(float64(b.rtt) * b.buffer)}
	qps := b.ours
	if instead {
		qps = 0
	}
	x := newSenders(t, qps, net, 1)
	for i, p := range x.pairs {
		p.start = ib.Instant(i)*apart + 5*ms
	}
	for i := range b.ours - qps {
		x.neighbour(newTCPCubic(), ib.Instant(i)*apart+5*ms)
	}
	for i := range b.theirs {
		x.neighbour(b.neighbour(), ib.Instant(i)*apart)
	}
	end := 1000 * b.rtt
	if *congestionAll {
		end *= 2
	}
	if b.long {
		end = max(end, 25_000*ms) // BBR measures the shortest round trip every ten seconds
	}
	list := x.measure(load{op: ib.WRWrite, size: 64 << 10, depth: hostEntries, n: 1 << 30}, 500*b.rtt, end)
	const fair = rate * 1024 / (1024 + packetOverhead)
	part := float64(b.ours+b.theirs) / fair
	return part * sum(list[:b.ours]) / float64(b.ours), part * sum(list[b.ours:]) / float64(b.theirs)
}

// TestNeighbour: beside TCP each has between half of what is fair and twice as much. CUBIC beside BBR does not have
// that either, in short queues and in long ones: there we have between half of what it has, and twice as much, or what
// is fair.
func TestNeighbour(t *testing.T) {
	require.NoRace(t, "millions of packets")
	for _, c := range neighbours {
		for _, rtt := range []ib.Instant{2 * ms, 20 * ms} {
			for _, buffer := range []float64{0.5, 1, 4} {
				for _, n := range [][2]int{{1, 1}, {1, 4}, {4, 1}} {
					if !*congestionAll && (rtt > 2*ms || c.name == "bbr" && (buffer != 1 || n[0]+n[1] > 2)) {
						continue
					}
					b := beside{c.new, rtt, buffer, n[0], n[1], *congestionAll && c.name == "bbr"}
					name := fmt.Sprintf("%s/rtt=%dms/buffer=%.1f/%d:%d", c.name, rtt/ms, buffer, n[0], n[1])
					t.Run(name, func(t *testing.T) {
						t.Parallel()
						ours, theirs := b.shares(t, false)
						least, most := 0.5, 2.0
						if c.name == "bbr" {
							cubic, bbr := b.shares(t, true)
							t.Logf("TCP CUBIC instead: %.2f : %.2f", cubic, bbr)
							least, most = min(least, cubic/2), max(most, 2*cubic, 2*bbr)
						}
						t.Logf("%.2f : %.2f of what is fair", ours, theirs)
						if ours < least || max(ours, theirs) > most || c.name != "bbr" && theirs < least {
							t.Errorf("got %.2f : %.2f of what is fair, want %.2f to %.2f", ours, theirs, least, most)
						}
					})
				}
			}
		}
	}
}

// TestFair: flows that begin at different times share a bottleneck of 1 Gb/s once their windows have found their size,
// and no QP waits for longer than four round trips, with a full queue, until something is acknowledged. A window of
// seven packets does not show each loss, so that a QP may wait for as long as the ACK timeout.
func TestFair(t *testing.T) {
	require.NoRace(t, "millions of packets")
	const write, read, mix = "WRITE", "READ", "WRITE and READ"
	for _, rtt := range []ib.Instant{ms / 2, 2 * ms} {
		for _, flows := range []int{2, 4, 8, 16} {
			for _, what := range []string{write, read, mix} {
				if !*congestionAll && (rtt > ms || flows > 2 && (flows < 16 || what != mix)) {
					continue
				}
				t.Run(fmt.Sprintf("rtt=%dus/%d %s", rtt/1000, flows, what), func(t *testing.T) {
					t.Parallel()
					const rate = 0.125
					net := network{oneWay: rtt / 2, rate: rate, buffer: rtt, jitter: rtt / 20}
					x := newSenders(t, flows, net, 1)
					for i, p := range x.pairs {
						p.start = ib.Instant(i) * 10 * rtt
						p.far = what == read || what == mix && i%2 > 0
					}
					l := load{op: ib.WRWrite, size: 64 << 10, depth: 32, n: 1 << 30}
					shares := x.measure(l, 2000*rtt, 8000*rtt)
					stuck := ib.Instant(0)
					for i, p := range x.pairs {
						if p.failed != ib.WCSuccess {
							t.Errorf("flow %d: got %v, want success", i, p.failed)
						}
						stuck = max(stuck, p.stuck)
					}
					goal, most := 0.95, 4*(rtt+net.buffer)
					if rtt < ms && flows > 8 {
						most = 67 * ms
					}
					t.Logf("Jain %.3f, %.3f of the link, %.1f ms at most without progress", jain(shares),
						sum(shares)/rate/1024*(1024+packetOverhead), float64(stuck)/float64(ms))
					if jain(shares) < goal || stuck > most {
						t.Errorf("got Jain %.3f, and %d us without progress, want %.2f, %d", jain(shares), stuck/1000,
							goal, most/1000)
					}
				})
			}
		}
	}
}

// measure runs until an end, and returns the payload that each QP and then each neighbour has carried from a beginning
// on, in bytes a nanosecond.
func (x *devices) measure(l load, from, end ib.Instant) (shares []float64) {
	x.end = from
	x.run(l)
	before := x.carried(l)
	for _, p := range x.pairs {
		p.stuck = 0
	}
	x.end = end
	x.run(l)
	for i, after := range x.carried(l) {
		shares = append(shares, (after-before[i])/float64(end-from))
	}
	return shares
}

// carried returns the bytes that each has carried so far.
func (x *devices) carried(l load) (bytes []float64) {
	for _, p := range x.pairs {
		bytes = append(bytes, float64(len(p.done)*l.size))
	}
	for _, s := range x.others {
		bytes = append(bytes, float64(s.(*tcpFlow).delivered*tcpPayload))
	}
	return bytes
}

func sum(list []float64) (s float64) {
	for _, v := range list {
		s += v
	}
	return s
}

// jain is the fairness index of Jain: 1 if all have the same.
func jain(shares []float64) float64 {
	squares := 0.0
	for _, s := range shares {
		squares += s * s
	}
	return sum(shares) * sum(shares) / (float64(len(shares)) * squares)
}

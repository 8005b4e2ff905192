package qp

import (
	"fmt"
	"testing"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/ib/driver"
	"github.com/goroce/goroce/tests/require"
)

// takes returns how long n messages of 64 KiB, 16 at a time, take over a network, in virtual time. change may change
// the devices.
func takes(t *testing.T, net network, op ib.WROpcode, n int, change func(*devices)) (took ib.Instant) {
	seeds := require.Rounds(6, 20)
	for seed := range uint64(seeds) {
		took += takesOnce(t, net, seed, op, n, change)
	}
	return took / ib.Instant(seeds)
}

// takesOnce is takes with one seed.
func takesOnce(t *testing.T, net network, seed uint64, op ib.WROpcode, n int, change func(*devices)) ib.Instant {
	x := newDevices(t, net, 1, seed)
	if change != nil {
		change(x)
	}
	x.run(load{op: op, size: 64 << 10, depth: 16, n: n})
	if p := x.pairs[0]; p.failed != ib.WCSuccess {
		t.Errorf("seed %d: got %v after %d requests, want success", seed, p.failed, len(p.done))
	}
	return x.now
}

// TestGoodput: what a path that loses packets at random carries, as a part of what it carries without loss: 10 Gb/s, a
// round trip of 50 us.
func TestGoodput(t *testing.T) {
	require.NoRace(t, "millions of packets")
	net := network{oneWay: 25_000, rate: 1.25, buffer: 10 * ms}
	goals := map[float64]float64{0.0001: 0.99, 0.001: 0.97, 0.01: 0.90, 0.03: 0.75, 0.05: 0.60}
	strict := map[float64]float64{0.001: 0.5, 0.01: 0.2, 0.03: 0.1}
	for _, c := range []struct {
		name   string
		op     ib.WROpcode
		change func(*devices)
		goals  map[float64]float64
	}{
		{"READ", ib.WRRead, nil, goals},
		{"WRITE", ib.WRWrite, nil, strict},
		{"SEND", ib.WRSend, nil, strict},
		{"READ with SACK", ib.WRRead, sacks, goals},
		{"WRITE with SACK", ib.WRWrite, sacks, goals},
		{"SEND with SACK", ib.WRSend, sacks, goals},
	} {
		if !*congestionAll && c.op == ib.WRSend {
			continue
		}
		clean := takes(t, net, c.op, 300, c.change)
		for loss, goal := range c.goals {
			t.Run(fmt.Sprintf("%s/%v", c.name, loss), func(t *testing.T) {
				t.Parallel()
				n := net
				n.drop = loss
				got := float64(clean) / float64(takes(t, n, c.op, 300, c.change))
				if t.Logf("%.3f of lossless", got); got < goal {
					t.Errorf("got %.3f of the goodput without loss, want %.2f", got, goal)
				}
			})
		}
	}
}

// TestGoodputReordered: what a path carries on which packets come late, or twice, as a part of what it carries
// without: 10 Gb/s, a round trip of 50 us. To a strict peer all behind what is late is sent again.
func TestGoodputReordered(t *testing.T) {
	require.NoRace(t, "millions of packets")
	const rtt = 50_000
	net := network{oneWay: rtt / 2, rate: 1.25, buffer: 10 * ms}
	for _, c := range []struct {
		name   string
		op     ib.WROpcode
		change func(*devices)
		goals  int // which
	}{
		{"READ", ib.WRRead, nil, 0},
		{"WRITE", ib.WRWrite, nil, 1},
		{"SEND", ib.WRSend, nil, 1},
		{"READ, strict", ib.WRRead, strict, 2},
		{"READ with SACK", ib.WRRead, sacks, 0},
		{"WRITE with SACK", ib.WRWrite, sacks, 0},
		{"SEND with SACK", ib.WRSend, sacks, 0},
	} {
		if !*congestionAll && c.op == ib.WRSend {
			continue
		}
		clean := takes(t, net, c.op, 300, c.change)
		for _, how := range []struct {
			name  string
			late  float64
			delay ib.Instant
			twice float64
			goals [3]float64 // SACK, and READ; SEND and WRITE to a peer without SACKs; READ from one that keeps nothing
		}{
			{"late 1% 5us", 0.01, rtt / 10, 0, [3]float64{0.97, 0.88, 0.95}},
			{"late 10% 5us", 0.1, rtt / 10, 0, [3]float64{0.95, 0.75, 0.90}},
			{"late 1% 25us", 0.01, rtt / 2, 0, [3]float64{0.95, 0.4, 0.95}},
			{"late 1% 50us", 0.01, rtt, 0, [3]float64{0.95, 0.4, 0.95}},
			{"late 1% 100us", 0.01, 2 * rtt, 0, [3]float64{0.92, 0.4, 0.90}},
			{"late 10% 25us", 0.1, rtt / 2, 0, [3]float64{0.95, 0.25, 0.85}},
			{"late 10% 50us", 0.1, rtt, 0, [3]float64{0.94, 0.25, 0.68}},
			{"late 10% 100us", 0.1, 2 * rtt, 0, [3]float64{0.90, 0.25, 0.62}},
			{"twice 1%", 0, 0, 0.01, [3]float64{0.95, 0.95, 0.95}},
			{"twice 10%", 0, 0, 0.1, [3]float64{0.95, 0.95, 0.95}},
		} {
			if !*congestionAll && how.delay != rtt && how.delay != rtt/10 && how.twice < 0.1 {
				continue
			}
			name := c.name + "/" + how.name
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				n := net
				n.late, n.delay, n.twice = how.late, how.delay, how.twice
				got := float64(clean) / float64(takes(t, n, c.op, 300, c.change))
				if t.Logf("%s: %.3f of what it carries in order", name, got); got < how.goals[c.goals] {
					t.Errorf("got %.3f of what it carries in order, want %.2f", got, how.goals[c.goals])
				}
			})
		}
	}
}

// sacks makes both devices know that the other takes SACKs.
func sacks(x *devices) {
	x.flow.SetSelective(true)
	for _, p := range x.pairs {
		p.b.flow.SetSelective(true)
	}
}

// strict makes the devices that answer drop what comes behind a gap.
func strict(x *devices) {
	for _, p := range x.pairs {
		p.b.q.cfg.Limits.Reorder = nil
	}
}

// ungated takes each loss for congestion.
func ungated(x *devices) { x.flow.gate.shutUntil = driver.Never }

// TestGoodputBottleneck: a bottleneck whose queue is too short to be seen carries as much as if each loss were
// congestion.
func TestGoodputBottleneck(t *testing.T) {
	require.NoRace(t, "millions of packets")
	for _, rate := range []float64{0.0125, 0.125, 0.625, 1.25} { // bytes per nanosecond
		for _, buffer := range []float64{0.1, 0.25, 1, 4} { // of the path's bandwidth-delay product
			if !*congestionAll && rate != 0.125 && rate != 1.25 {
				continue
			}
			net := network{oneWay: ms / 10, rate: rate, buffer: ib.Instant(float64(ms) / 5 * buffer)}
			t.Run(fmt.Sprintf("%.0fMb/buffer=%.2f", rate*8000, buffer), func(t *testing.T) {
				t.Parallel()
				got := float64(takes(t, net, ib.WRRead, 100, ungated)) / float64(takes(t, net, ib.WRRead, 100, nil))
				if t.Logf("%.2f", got); got < 0.9 {
					t.Errorf("got %.2f of the goodput with each loss taken for congestion, want 0.9", got)
				}
			})
		}
	}
}

package qp

import (
	"testing"

	"github.com/goroce/goroce/ib"
)

// gated is the congestion control of a path with a round trip of 50 us, and that of late where a queue is.
type gated struct {
	*Flow
	now ib.Instant
}

func newGated() *gated {
	g := &gated{Flow: NewFlow(FlowConfig{Window: 100})}
	g.sample(50_000)
	return g
}

// sample measures a round trip.
func (g *gated) sample(rtt int64) {
	g.now += ib.Instant(rtt)
	g.rtt.begin(g.now)
	g.rtt.sure(rtt)
}

// rounds are windows of which so many packets are lost each.
func (g *gated) rounds(n, lost int) {
	for range n {
		g.sample(50_000)
		if lost > 0 {
			g.onLost(g.now, lost)
		}
		g.onACK(g.now, g.cwnd-lost)
	}
}

// TestGate: what makes a loss a sign of congestion.
func TestGate(t *testing.T) {
	for _, c := range []struct {
		name string
		play func(*gated)
		cuts bool
	}{
		{"no queue", func(g *gated) { g.rounds(1, 1) }, false},
		{"no queue, a seventh lost", func(g *gated) { g.rounds(1, 15) }, false},
		{"no queue, more than a seventh lost", func(g *gated) { g.rounds(1, 16) }, true},
		{"a queue", func(g *gated) {
			g.sample(160_000)
			g.sample(160_000)
			g.onLost(g.now, 1)
		}, true},
		{"a queue, and a sample that found none", func(g *gated) {
			g.sample(160_000)
			g.sample(60_000)
			g.onLost(g.now, 1)
		}, false},
		{"no round trip measured", func(g *gated) {
			g.rtt = rttEstimate{}
			g.onLost(g.now, 1)
		}, true},
	} {
		g := newGated()
		c.play(g)
		if cut := g.cwnd < 90; cut != c.cuts {
			t.Errorf("%s: got a window of %d packets, want it cut: %v", c.name, g.cwnd, c.cuts)
		}
	}
}

// TestGateTrial: losses that keep coming make the window smaller for a trial. What it shows holds for a while.
func TestGateTrial(t *testing.T) {
	for _, c := range []struct {
		name   string
		during int // losses in a round of the trial
		after  int // the window after it, at least
		shut   bool
	}{
		{"random", 2, 100, false},
		{"congestion", 0, 70, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := newGated()
			rounds := 0
			for ; g.gate.limit == 0 && rounds < 100; rounds++ {
				g.rounds(1, 2)
			}
			if rounds < trialLosses/2 || g.cwnd > 80 {
				t.Fatalf("got a window of %d packets after %d rounds, want a trial", g.cwnd, rounds)
			}
			for range 100 {
				if g.gate.limit == 0 {
					break
				}
				g.rounds(1, c.during)
			}
			if g.cwnd < c.after || g.gate.limit != 0 {
				t.Errorf("got a window of %d packets after the trial, want %d at least", g.cwnd, c.after)
			}
			if shut := g.gate.shutUntil > g.now; shut != c.shut {
				t.Errorf("got each loss taken for congestion: %v, want %v", shut, c.shut)
			}
			if rests := g.gate.restUntil > g.now; rests == c.shut {
				t.Errorf("got no trial for a while: %v, want %v", rests, !c.shut)
			}
		})
	}
}

// TestLate: where packets overtake each other, a gap makes the window smaller only if there is a queue.
func TestLate(t *testing.T) {
	for _, c := range []struct {
		name  string
		late  int // of 16 that looked lost
		rtt   int64
		stays bool // the window
	}{
		{"none late", 0, 50_000, false},
		{"few late", 3, 50_000, false},
		{"many late", 4, 50_000, true},
		{"many late, and a queue", 4, 500_000, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := newGated()
			g.gate.late.looksLost(lateCount)
			g.onLate(c.late)
			for range 3 {
				g.sample(c.rtt)
			}
			before := g.cwnd
			if g.onLoss(g.now); (g.cwnd == before) != c.stays {
				t.Errorf("got a window of %d after one of %d, want the same: %v", g.cwnd, before, c.stays)
			}
		})
	}
	var l lateness
	for range 1000 {
		l.looksLost(1)
		l.wasLate(2) // a network that sends packets twice shows more than there was
	}
	if l.late > l.lost || l.lost > 2*lateCount {
		t.Errorf("got %d of %d late, want as many at most, and %d", l.late, l.lost, 2*lateCount)
	}
}

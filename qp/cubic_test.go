package qp

import (
	"math"
	"testing"

	"github.com/goroce/goroce/ib"
)

// ackClock drives a Flow, one window a round trip of 10 ms, without QPs.
type ackClock struct {
	*Flow
	now ib.Instant
}

func newAckClock(window int) *ackClock {
	c := &ackClock{Flow: NewFlow(FlowConfig{Window: window})}
	c.sample(10 * ms)
	return c
}

// sample measures a round trip.
func (c *ackClock) sample(rtt ib.Instant) {
	c.now += rtt
	c.rtt.begin(c.now)
	c.rtt.sure(int64(rtt))
}

// rounds acknowledges n full windows.
func (c *ackClock) rounds(n int, rtt ib.Instant) {
	for range n {
		c.sample(rtt)
		c.limits()
		c.onACK(c.now, c.cwnd)
	}
}

// TestSlowStart: the window doubles in each round trip, until these become longer; then it grows by a quarter in five
// more, and that is its size.
func TestSlowStart(t *testing.T) {
	c := newAckClock(0)
	for want := 16; want <= 1024; want *= 2 {
		if c.CongestionWindow() != want {
			t.Fatalf("got a window of %d packets, want %d", c.CongestionWindow(), want)
		}
		c.rounds(1, 10*ms)
	}
	before := c.CongestionWindow()
	c.rounds(1, 12*ms) // an eighth longer, and more
	if got, want := c.CongestionWindow(), before*5/4; got != want {
		t.Errorf("got a window of %d packets after a longer round trip, want %d", got, want)
	}
	c.rounds(cssRounds, 12*ms)
	reached := c.CongestionWindow()
	if c.rounds(1, 12*ms); c.CongestionWindow() > reached+reached/20 {
		t.Errorf("got a window of %d packets a round trip after slow start, %d at its end, want hardly more",
			c.CongestionWindow(), reached)
	}
}

// TestSlowStartNoise: a single longer round trip does not end slow start.
func TestSlowStartNoise(t *testing.T) {
	c := newAckClock(0)
	c.rounds(1, 10*ms)
	c.rounds(1, 30*ms)
	c.rounds(1, 9*ms)
	before := c.CongestionWindow()
	if c.rounds(1, 9*ms); c.CongestionWindow() != 2*before {
		t.Errorf("got a window of %d packets after one of %d, want twice as many", c.CongestionWindow(), before)
	}
}

// TestIdleWindow: a window that is not used does not grow.
func TestIdleWindow(t *testing.T) {
	c := newAckClock(0)
	c.rounds(1, 10*ms)
	before := c.CongestionWindow()
	for range 20 {
		c.sample(10 * ms)
		c.onACK(c.now, 1)
	}
	if c.CongestionWindow() > before+2 {
		t.Errorf("got a window of %d packets after one that was not full, want %d", c.CongestionWindow(), before)
	}
}

// TestCubicCurve: after a loss 0.7 of the window is left, and it is as large as before again after the time that
// RFC 9438, 4.2 computes: flat there, steep later.
func TestCubicCurve(t *testing.T) {
	c := newAckClock(2000)
	c.rounds(2, 100*ms)
	before := c.cc.window()
	c.onLoss(c.now)
	if got, want := c.cc.window(), cubicBeta*before; math.Abs(got-want) > 0.01*want {
		t.Fatalf("got a window of %.0f packets after a loss, want %.0f", got, want)
	}
	k := math.Cbrt(before * (1 - cubicBeta) / (cubicC * segment)) // seconds
	c.rounds(int(k*10), 100*ms)
	if got := c.cc.window(); got < 0.97*before || got > 1.03*before {
		t.Errorf("got a window of %.0f packets after %.1f s, want about %.0f", got, k, before)
	}
	c.rounds(int(k*10), 100*ms)
	if got, want := c.cc.window(), before*(1+1-cubicBeta); got < 0.95*want || got > 1.05*want {
		t.Errorf("got a window of %.0f packets after %.1f s, want about %.0f", got, 2*k, want)
	}
}

// TestOneReduction: what was in flight at a reduction is lost without another one.
func TestOneReduction(t *testing.T) {
	c := newAckClock(1000)
	c.charge(1000, 1)
	c.sample(10 * ms)
	c.onLoss(c.now)
	after := c.CongestionWindow()
	c.now += 15 * ms
	if c.onLoss(c.now); c.CongestionWindow() != after {
		t.Errorf("got a window of %d packets after a second loss of a flight, want %d", c.CongestionWindow(), after)
	}
	c.onACK(c.now, 1000)
	if c.onLoss(c.now); c.CongestionWindow() >= after {
		t.Errorf("got a window of %d packets after a loss of the next flight, want less than %d",
			c.CongestionWindow(), after)
	}
}

// TestSilence: after an ACK timeout in which nothing came a packet is left, after more of them less, and the time
// between two packets has a bound. An answer to what was sent before the timeout restores the window.
func TestSilence(t *testing.T) {
	const timeout = 67 * ms
	c := newAckClock(100)
	c.onACK(c.now, 1)
	for _, want := range []float64{1, 0.5, 0.25} {
		c.now += timeout
		if c.onTimeout(c.now, int64(timeout)); c.cc.window() != want {
			t.Errorf("got a window of %v packets, want %v", c.cc.window(), want)
		}
	}
	for range 20 {
		c.now += timeout
		c.onTimeout(c.now, int64(timeout))
	}
	if c.cc.window() != cwndMin || c.Flow.pace.nsPerKB > paceMost {
		t.Errorf("got a window of %v packets and %v ns for each, want %v and %v at most", c.cc.window(),
			c.Flow.pace.nsPerKB, cwndMin, paceMost)
	}
	if c.undo(1); c.CongestionWindow() != 100 {
		t.Errorf("got a window of %d packets after timeouts that were too early, want 100", c.CongestionWindow())
	}
}

// TestWindowMost: near peers have 1,024 packets in flight at most, far ones more.
func TestWindowMost(t *testing.T) {
	for rtt, want := range map[ib.Instant]int{ms / 20: 1024, ms / 2: 1024, ms: 2048, 100 * ms: 16384} {
		c := &ackClock{Flow: NewFlow(FlowConfig{})}
		c.sample(rtt)
		if c.rounds(40, rtt); c.CongestionWindow() != want {
			t.Errorf("a round trip of %d us: got a window of %d packets, want %d", rtt/1000, c.CongestionWindow(), want)
		}
	}
}

// TestBucket: what leaves takes its time, in quanta. One that was not used has no more than a quantum and what timers
// are late.
func TestBucket(t *testing.T) {
	var b bucket
	if b.set(0, 16); b.ready(5) != 5 || b.train(5, 1024) < 1<<20 {
		t.Error("got a rate without a round trip, want none")
	}
	const perKB = 10_000 // nanoseconds
	b.set(perKB, 64)     // a quantum of 16 KiB
	now, sent := ib.Instant(ms), 0
	for end := now + 100*ms; now < end; {
		n := min(b.train(now, 1024), 64)
		b.sent(now, n*1024)
		sent += n
		now = max(now, b.ready(now))
	}
	if want := int(100 * ms / perKB); sent < want || sent > want+2*quantumMost+catchUp/perKB {
		t.Errorf("got %d KiB in 100 ms, want %d and a quantum or two", sent, want)
	}
	now += 10 * ms
	if n := b.train(now, 1024); n < quantumMost {
		t.Errorf("got a train of %d KiB after a rest, want %d at least", n, quantumMost)
	}
}

// TestMarkAfterUnknown: a mark is answered a round trip after the latest reduction. If the round trip was not known
// then, the one counts that has been measured since.
func TestMarkAfterUnknown(t *testing.T) {
	c := &ackClock{Flow: NewFlow(FlowConfig{})}
	c.onMark(c.now)
	c.sample(ms / 10)
	for _, want := range []float64{0.8 * cwndStart, 0.64 * cwndStart} {
		if got := c.cc.window(); math.Abs(got-want) > 1e-9 {
			t.Fatalf("got a window of %v packets at %d us, want %v", got, c.now/1000, want)
		}
		c.sample(ms / 10)
		c.onMark(c.now)
	}
}

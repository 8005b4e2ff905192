package qp

import (
	"math"

	"github.com/goroce/goroce/ib"
)

// Constants of CUBIC (RFC 9438, 4.1 and 5).
const (
	cubicC    = 0.4 // segments/s^3
	cubicBeta = 0.7
	// markBeta is what a mark leaves of the window: the queue that it shows is shorter than one that overflows
	// (RFC 8511).
	markBeta = 0.8
	// segment is what a TCP segment on Ethernet has of the 1,024 bytes of a packet, so that both grow alike.
	segment = 1448.0 / 1024
	// Slow start has left at most so much of the window unused when a loss ends it: it doubles in a round trip, and
	// losses are seen one later.
	overshot = 0.25
	// paceMost is the longest time between two packets, in nanoseconds: less often nothing would be learnt.
	paceMost = 50_000_000
	// All that was in flight at a reduction may be lost without another one, for so many round trips at most.
	recoveryMost = 4
)

// cubic is the congestion control of RFC 9438. It starts with slow start, which HyStart++ ends. The window may
// become smaller than a packet, as in Swift: many senders to one receiver are too many with one packet each.
type cubic struct {
	cwnd     float64 // packets
	ssthresh float64 // slow start ends here
	start    hystart

	wMax   float64    // window before the latest reduction
	wEst   float64    // that of Reno since (RFC 9438, 4.3)
	prior  float64    // from here on it grows like Reno
	epoch  ib.Instant // when the growth began; 0: not yet
	k      float64    // seconds from there until wMax is reached
	silent ib.Instant // the latest ACK timeout in which nothing came
	cut    ib.Instant // the latest reduction
	ends   ib.Instant // of the round trip that it is for
	before struct{ ssthresh, wMax float64 }
}

// newCubic returns the congestion control of a path with a known window; 0 if it is not known.
func newCubic(window int) *cubic {
	if window > 0 {
		return &cubic{cwnd: float64(window), ssthresh: float64(window)}
	}
	return &cubic{cwnd: cwndStart, ssthresh: math.Inf(1)}
}

func (c *cubic) window() float64 { return c.cwnd }

func (c *cubic) sawQueue() bool { return c.cwnd < c.ssthresh && c.start.baseline > 0 }

// pace spreads the window over a round trip, a little faster, so that the window stays what limits (as Linux does).
func (c *cubic) pace(rtt *rttEstimate) float64 {
	gain := 1.25
	if c.cwnd < c.ssthresh {
		gain = 2
	}
	if c.cwnd < 1 {
		gain = 1
	}
	return min(float64(rtt.mean)/(gain*c.cwnd), paceMost)
}

func (c *cubic) acked(f *Flow, now ib.Instant, n int) {
	if !f.wasLimited() {
		c.epoch = 0
		return
	}
	if c.cwnd < c.ssthresh {
		c.cwnd += float64(n) / c.start.divisor(&f.rtt)
		if c.start.over() {
			c.ssthresh = c.cwnd
		}
	} else {
		c.avoid(now, n, &f.rtt)
	}
	c.cwnd = min(c.cwnd, f.windowMost())
}

// avoid grows the window in congestion avoidance.
func (c *cubic) avoid(now ib.Instant, n int, rtt *rttEstimate) {
	if c.epoch == 0 {
		c.epoch, c.wEst = now, c.cwnd
		c.wMax = max(c.wMax, c.cwnd)
		c.k = math.Cbrt((c.wMax - c.cwnd) / (cubicC * segment))
	}
	t := float64(int64(now-c.epoch)+rtt.mean)/1e9 - c.k
	target := min(max(cubicC*segment*t*t*t+c.wMax, c.cwnd), 1.5*c.cwnd)
	alpha := segment * min(c.cwnd/2, 1) // TCP has no less than two packets: what is below is approached slowly
	if c.wEst < c.prior {
		alpha *= 3 * (1 - cubicBeta) / (1 + cubicBeta)
	}
	part := float64(n) / max(c.cwnd, 1)
	c.wEst += alpha * part * min(c.cwnd, 1)
	c.cwnd = max(c.cwnd+(target-c.cwnd)*min(part, 1), c.wEst)
}

func (c *cubic) congested(f *Flow, now ib.Instant, by congestion) {
	flight := ib.Instant(f.rtt.flight())
	ends := c.ends
	if by == byMark { // without a doubt: the round trip counts that is known now
		ends = min(ends, c.cut+flight)
	}
	if by != bySilence && (now < ends || f.unsettled > 0 && now < ends+recoveryMost*flight) {
		return
	}
	c.cut, c.ends, f.unsettled = now, now+flight, f.packets
	c.before.ssthresh, c.before.wMax = c.ssthresh, c.wMax
	beta := cubicBeta
	if by == byMark {
		beta = markBeta
	}
	c.prior = c.cwnd
	if c.cwnd < c.wMax { // make room for others, faster (RFC 9438, 4.7)
		c.wMax = c.cwnd * (1 + beta) / 2
	} else {
		c.wMax = c.cwnd
	}
	c.epoch = 0
	if c.cwnd < c.ssthresh && by == byLoss && f.rtt.least > 0 { // slow start went too far: this is what was carried
		beta = min(max(float64(f.rate.window())/c.cwnd, overshot), beta)
	}
	c.ssthresh = max(c.cwnd*beta, cwndMin)
	if c.cwnd = c.ssthresh; by == bySilence {
		if c.cwnd, c.ssthresh = min(1, c.prior), max(c.ssthresh, 2); f.heard < c.silent {
			c.cwnd /= 2 // what this is for is too much, too
		}
		if f.rtt.least == 0 {
			c.ssthresh = c.before.ssthresh // nothing is known of the path
		}
		c.start, c.silent = hystart{}, now
	}
	c.cwnd = max(c.cwnd, cwndMin)
}

func (c *cubic) restore(cwnd float64) {
	c.cwnd, c.ssthresh, c.wMax = max(c.cwnd, cwnd), c.before.ssthresh, max(c.wMax, c.before.wMax)
	c.epoch = 0
}

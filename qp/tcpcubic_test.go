package qp

import (
	"math"

	"github.com/goroce/goroce/ib"
)

// tcpCubic is CUBIC for a tcpFlow (RFC 9438), with HyStart as Linux has it (tcp_cubic.c).
type tcpCubic struct {
	cwnd, ssthresh   float64
	wMax, wEst, k    float64
	prior            float64
	epoch            ib.Instant
	least            ib.Instant // the shortest round trip
	roundEnds        int        // when so much is delivered
	roundAt, ackedAt ib.Instant // its begin, and the end of its train of ACKs
	shortest         ib.Instant // round trip of this round, of the first samples
	samples          int
}

func newTCPCubic() *tcpCubic { return &tcpCubic{cwnd: tcpStart, ssthresh: math.Inf(1)} }

func (c *tcpCubic) window() float64 { return c.cwnd }
func (c *tcpCubic) pace() float64   { return 0 }

func (c *tcpCubic) acked(f *tcpFlow, now ib.Instant, n int, latest *transmission) {
	rtt := now - latest.at
	if c.least == 0 || rtt < c.least {
		c.least = rtt
	}
	switch {
	case f.recovering():
	case c.cwnd < c.ssthresh:
		c.cwnd += float64(n)
		c.hystart(f, now, rtt, latest)
	default:
		c.avoid(now, float64(n))
	}
}

// hystart ends slow start when round trips become longer, or when the ACKs of a round come in one train that takes half
// of a round trip.
func (c *tcpCubic) hystart(f *tcpFlow, now, rtt ib.Instant, latest *transmission) {
	if latest.delivered >= c.roundEnds {
		c.roundEnds, c.roundAt, c.ackedAt, c.shortest, c.samples = f.delivered, now, now, rtt, 0
	}
	c.shortest = min(c.shortest, rtt)
	c.samples++
	if c.cwnd < 16 {
		return
	}
	if now-c.ackedAt <= 2*ms {
		if c.ackedAt = now; now-c.roundAt > c.least/2 {
			c.ssthresh = c.cwnd
		}
	}
	if c.samples == 8 && c.shortest > c.least+min(max(c.least/8, 4*ms), 16*ms) {
		c.ssthresh = c.cwnd
	}
}

func (c *tcpCubic) avoid(now ib.Instant, n float64) {
	if c.epoch == 0 {
		c.epoch, c.wEst = now, c.cwnd
		c.wMax = max(c.wMax, c.cwnd)
		c.k = math.Cbrt((c.wMax - c.cwnd) / 0.4)
	}
	t := float64(now-c.epoch+c.least)/1e9 - c.k
	target := min(max(0.4*t*t*t+c.wMax, c.cwnd), 1.5*c.cwnd)
	alpha := 1.0
	if c.wEst < c.prior {
		alpha = 3 * 0.3 / 1.7
	}
	c.wEst += alpha * n / c.cwnd
	c.cwnd = max(c.cwnd+(target-c.cwnd)*n/c.cwnd, c.wEst)
}

func (c *tcpCubic) lost(*tcpFlow, ib.Instant) {
	c.prior, c.epoch = c.cwnd, 0
	if c.cwnd < c.wMax {
		c.wMax = c.cwnd * 0.85
	} else {
		c.wMax = c.cwnd
	}
	c.cwnd = max(0.7*c.cwnd, 2)
	c.ssthresh = c.cwnd
}

func (c *tcpCubic) silent(f *tcpFlow, now ib.Instant) {
	c.lost(f, now)
	c.cwnd, c.roundEnds = 1, 0
}

package qp

import "github.com/goroce/goroce/ib"

// Bounds of a congestion window, in packets.
const (
	cwndStart = 128
	cwndMin   = 4
	cwndMax   = 1024
)

// aimd is the congestion control of a Flow (RFC 5681, 3.1): the congestion window grows by one
// packet for each window that is acknowledged, and halves on a loss, unless the gate (gate.go) says that
// it has nothing to do with the load. There is no slow start.
type aimd struct {
	cwnd       int        // congestion window, in packets
	acked      int        // packets acknowledged since cwnd last grew
	lossEndsAt ib.Instant // losses before this time do not halve cwnd again
	undoCwnd   int        // cwnd before ACK timeouts that may have been too early; 0: none
	gate       lossGate
}

// onACK does the additive increase.
func (c *aimd) onACK(now ib.Instant, packets int) {
	c.cwnd = max(c.cwnd, c.gate.onACK(now, packets))
	c.acked += packets
	for ; c.acked >= c.cwnd && c.cwnd < cwndMax; c.cwnd++ {
		c.acked -= c.cwnd
	}
}

// onLoss does the multiplicative decrease, once for all losses within one round trip of rtt
// nanoseconds.
func (c *aimd) onLoss(now ib.Instant, rtt int64) {
	c.undoCwnd = 0
	c.decrease(now, rtt)
}

// onLost does the same for n packets, if they are a sign of congestion.
func (c *aimd) onLost(now ib.Instant, rtt *rttEstimate, n int) {
	if now >= c.lossEndsAt {
		c.gate.round = 0
	}
	switch {
	case c.gate.congestion(now, rtt, n, c.cwnd):
		c.onLoss(now, rtt.flight())
	case now < c.lossEndsAt:
	case c.gate.tries(now, c.cwnd):
		c.cwnd = max(c.cwnd*7/10, cwndMin)
		fallthrough
	default:
		c.lossEndsAt = now + ib.Instant(rtt.flight())
	}
}

// onMark answers a congestion notification: nothing is lost yet, so the decrease is a smaller one (RFC 8511).
func (c *aimd) onMark(now ib.Instant, rtt int64) {
	if now < c.lossEndsAt {
		return
	}
	c.lossEndsAt = now + ib.Instant(rtt)
	c.cwnd = max(c.cwnd*4/5, cwndMin)
	c.acked = 0
}

// onTimeout handles an ACK timeout like a loss, but undo can restore cwnd.
func (c *aimd) onTimeout(now ib.Instant, rtt int64) {
	if c.undoCwnd == 0 {
		c.undoCwnd = c.cwnd
	}
	c.decrease(now, rtt)
}

// undo restores cwnd from before ACK timeouts that ended before the peer could have
// answered, when nothing was lost (RFC 4015, 3).
func (c *aimd) undo() {
	c.cwnd = max(c.cwnd, c.undoCwnd)
	c.undoCwnd = 0
}

func (c *aimd) decrease(now ib.Instant, rtt int64) {
	if now < c.lossEndsAt {
		return
	}
	c.lossEndsAt = now + ib.Instant(rtt)
	c.cwnd = max(c.cwnd/2, cwndMin)
	c.acked = 0
}

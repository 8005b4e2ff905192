package qp

import "github.com/goroce/goroce/ib"

// This file tells congestion from other losses. A network that drops packets because a queue is
// full has made others wait in it first. A loss while round trips are as short as they have ever
// been has another reason: a bad cable, a radio link, a fault that somebody injects. To send less
// would not help then, so the congestion window stays. Only losses whose number is known are judged
// so, which are those of READ responses: a NAK shows one loss, and hides the others of its flight.
//
// A queue may also be too short to be seen among the scheduling delays of two hosts. So when such
// losses keep coming, the window is made smaller for a trial. If hardly anything is lost then, it
// was congestion, and all losses count as such for a while. Else the window is restored.
const (
	// queueNoise is the least delay that shows a queue, in nanoseconds.
	queueNoise = 100_000
	// A part of a window that is lost is congestion if it is as large as this, in percent.
	lostMost = 15
	// trialLosses is how many losses without a queue begin a trial, and how many are expected in one
	// that changes nothing. A quarter of these or less show congestion.
	trialLosses = 16
	// What a trial has shown holds for so long, in nanoseconds.
	congestionFor = ib.Instant(2_000_000_000)
	randomFor     = ib.Instant(10_000_000_000)
)

// lossGate decides which losses the congestion control of a Flow answers.
type lossGate struct {
	round       int        // packets lost in this round trip
	lost, acked int        // packets, since the count began
	limit       int        // packets to be acknowledged in the trial under way; 0: none
	cwnd        int        // before the trial
	shutUntil   ib.Instant // all losses are congestion
	restUntil   ib.Instant // no trial begins
}

// congestion reports whether n losses are a sign of congestion.
func (g *lossGate) congestion(now ib.Instant, rtt *rttEstimate, n, cwnd int) bool {
	g.round += n
	if now < g.shutUntil || rtt.queued() || g.round*100 > lostMost*cwnd {
		return true
	}
	g.lost += n
	return false
}

// tries reports whether a trial begins.
func (g *lossGate) tries(now ib.Instant, cwnd int) bool {
	if g.limit > 0 || g.lost < trialLosses {
		return false
	}
	lost, acked := g.lost, g.acked
	g.lost, g.acked = 0, 0
	if now < g.restUntil || lost*100 < acked {
		return false // less than one percent costs little
	}
	g.limit, g.cwnd = acked*trialLosses/lost, cwnd
	return true
}

// onACK counts acknowledged packets. At the end of a trial it returns the window from before if that was not too
// large, else 0.
func (g *lossGate) onACK(now ib.Instant, packets int) (cwnd int) {
	g.acked += packets
	if g.limit == 0 || g.acked < g.limit {
		return 0
	}
	cwnd, lost := g.cwnd, g.lost
	*g = lossGate{}
	if lost <= trialLosses/4 {
		g.shutUntil = now + congestionFor
		return 0
	}
	g.restUntil = now + randomFor
	return cwnd
}

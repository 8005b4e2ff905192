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
	// trialLosses is how many losses without a queue, of one packet or several, begin a trial, and how many are
	// expected in one that changes nothing. A quarter of these or less show congestion.
	trialLosses = 16
	// What a trial has shown holds for so long, in nanoseconds.
	congestionFor = ib.Instant(2_000_000_000)
	randomFor     = ib.Instant(10_000_000_000)
)

// lossGate decides which losses the congestion control of a Flow answers.
type lossGate struct {
	round       int        // packets lost in this round trip
	ends        ib.Instant // of it
	lost, acked int        // losses, and acknowledged packets, since the count began
	limit       int        // packets to be acknowledged in the trial under way; 0: none
	cwnd, ratio float64    // the window before the trial, and which part of the packets was lost
	shutUntil   ib.Instant // all losses are congestion
	restUntil   ib.Instant // no trial begins
	late        lateness
}

// lateness counts what looked lost, and what of it was only late: it arrived, and what was sent again in its place,
// too. Where that is so of many, packets overtake each other, and a gap says nothing about congestion.
type lateness struct{ lost, late int }

const (
	// lateCount is how many packets are counted at least, and half of those at most that are remembered.
	lateCount = 16
	// A part of the packets that looked lost, in percent: if so many were late, packets overtake each other. Several
	// that were late may have one answer.
	latePart = 25
)

// looksLost counts n packets that look lost.
func (l *lateness) looksLost(n int) {
	if l.lost += n; l.lost > 2*lateCount {
		l.lost, l.late = l.lost/2, l.late/2
	}
}

// wasLate counts n packets of those that were only late.
func (l *lateness) wasLate(n int) { l.late = min(l.late+n, l.lost) }

// common reports whether packets overtake each other.
func (l *lateness) common() bool { return l.lost >= lateCount && l.late*100 >= latePart*l.lost }

// verdict is what losses mean.
type verdict uint8

const (
	lossRandom verdict = iota
	lossCongestion
	lossTrial // a trial begins
)

// judge says what n losses mean.
func (g *lossGate) judge(now ib.Instant, rtt *rttEstimate, n int, cwnd float64) verdict {
	first := now >= g.ends
	if first {
		g.round, g.ends = 0, now+ib.Instant(rtt.flight())
	}
	g.round += n
	if now < g.shutUntil {
		return g.doubt(now)
	}
	if rtt.queued() || float64(g.round*100) > lostMost*max(cwnd, 1) {
		g.lost, g.acked, g.limit = 0, 0, 0
		return lossCongestion
	}
	g.lost++
	if first && g.tries(now, cwnd) {
		return lossTrial
	}
	return lossRandom
}

// doubt handles a loss while all losses are congestion. If smaller windows lose as much as before the trial, it was a
// mistake: few losses in it were chance.
func (g *lossGate) doubt(now ib.Instant) verdict {
	if g.lost++; g.lost < trialLosses {
		return lossCongestion
	}
	mistake := float64(g.lost) > g.ratio/2*float64(g.acked)
	g.lost, g.acked = 0, 0
	if !mistake {
		return lossCongestion
	}
	g.shutUntil, g.restUntil = 0, now+randomFor
	return lossRandom
}

// tries reports whether a trial begins.
func (g *lossGate) tries(now ib.Instant, cwnd float64) bool {
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
func (g *lossGate) onACK(now ib.Instant, packets int) (cwnd float64) {
	g.acked += packets
	if g.limit == 0 || g.acked < g.limit {
		return 0
	}
	cwnd, lost := g.cwnd, g.lost
	*g = lossGate{late: g.late, ratio: trialLosses / float64(g.limit)}
	if lost <= trialLosses/4 {
		g.shutUntil = now + congestionFor
		return 0
	}
	g.restUntil = now + randomFor
	return cwnd
}

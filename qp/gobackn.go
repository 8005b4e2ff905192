package qp

import (
	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/wire"
)

// goBackN is the retransmission policy: go-back-N, the only policy that works with an
// IBTA responder, which discards packets beyond a gap. The requester calls lost, notReady and
// timeout for what goes wrong and answered for progress, and sends the PSNs that these mark in
// its window.
type goBackN struct {
	r          *requester
	retries    uint8 // left of RetryCnt
	rnrRetries uint8 // left of RNRRetry
	// recovering says that a loss was seen and handled. Until something is acknowledged,
	// further NAKs and implied NAKs of the same flight are ignored.
	recovering bool
	timeouts   uint8      // ACK timeouts since the latest progress, counted up to 2
	heard      uint32     // likewise responses
	timedOutAt ib.Instant // the latest of these
}

// rnrForEver is the RNRRetry that stands for no limit.
const rnrForEver = 7

// start begins with no loss and with all retries.
func (g *goBackN) start() {
	g.recovering, g.heard, g.timeouts = false, 0, 0
	g.refill()
}

// refill resets the retry counters.
func (g *goBackN) refill() {
	g.retries, g.rnrRetries = g.r.q.attr.RetryCnt, g.r.q.attr.RNRRetry
}

// answered handles forward progress, which resets the retry counters (IBTA 9.9.2.4.1). early says that something is
// answered that was to be sent again, and was not yet.
func (g *goBackN) answered(now ib.Instant, early bool) {
	g.judgeTimeout(now, early)
	g.start()
}

// lost starts the retransmission from psn on after an answer that shows a loss, and reports
// whether it has: more packets of the same flight show the same loss. The responder has
// discarded the packets behind psn, so the timing of one of them stops.
func (g *goBackN) lost(now ib.Instant, psn ib.PSN) bool {
	if g.recovering {
		return false
	}
	flow := g.r.q.flow
	g.r.probe.stop()
	flow.lossy()
	if sendOps[g.r.slot(g.r.find(psn)).wr.Opcode].answered { // few packets follow a READ: one is lost
		flow.onLost(now, 1)
	} else {
		flow.onGap(now)
	}
	g.retry(now, psn)
	return true
}

// timeout handles the end of the local ACK timeout (IBTA 9.7.6.1.3).
func (g *goBackN) timeout(now ib.Instant) {
	r, flow := g.r, g.r.q.flow
	if r.win.inFlight() == 0 || r.q.timers.isSet(timerRNR) {
		return
	}
	if !r.silenceMeansLoss() {
		// If the window became smaller, it may be full of packets that did not ask for an ACK.
		if r.q.waiting && r.win.waiting() > 0 && !r.win.holds(r.ackReqs.latest) {
			r.probe.due = 1
		}
		r.armAck(now)
		return
	}
	r.q.cfg.Stats.LocalAckTimeout++
	r.q.recordTimer(TimerACK, int(g.retries))
	r.probe.askedAgain(now, byTimeout)
	r.forgetSACKs()
	if g.timeouts > 0 {
		r.probe.sent = min(r.probe.sent, probesSilent)
	}
	g.timeouts, g.timedOutAt = min(g.timeouts+1, 2), now
	flow.onTimeout(now, r.ackTimeout())
	g.retry(now, r.win.una)
}

// retry starts a retransmission from psn on, which uses one retry. With no retry left
// the oldest request in flight fails (IBTA 9.9.2.4.1: one counter for timeouts, sequence
// NAKs and implied NAKs). In rdma_rxe a count of 7 means no limit; here it means seven.
func (g *goBackN) retry(now ib.Instant, psn ib.PSN) {
	r, st := g.r, g.r.q.cfg.Stats
	g.recovering = true
	if g.retries == 0 {
		st.RetryExceeded++
		r.fail(r.find(r.win.una), ib.WCRetryExcErr, g.noAnswer())
		return
	}
	g.retries--
	st.CompleterRetry++
	g.goBack(psn, true)
	r.armAck(now)
	r.armProbe(now)
}

// notReady handles an RNR NAK of psn: the requester sends again from there on after the wait
// that the responder asks for (IBTA 9.7.5.2.8). An RNRRetry of 7 means no limit.
func (g *goBackN) notReady(now ib.Instant, psn ib.PSN, code wire.Syndrome) {
	r := g.r
	if r.q.timers.isSet(timerRNR) {
		return
	}
	if g.rnrRetries == 0 {
		r.q.cfg.Stats.RNRRetryExceeded++
		r.fail(r.find(psn), ib.WCRNRRetryExcErr, ib.Cause{Reason: ib.ReasonPeerNotReady, PSN: psn,
			Tries: uint32(r.q.attr.RNRRetry) + 1})
		return
	}
	if g.rnrRetries != rnrForEver {
		g.rnrRetries--
	}
	g.goBack(psn, false)
	r.probe.stop()
	r.q.timers.clear(timerAck)
	r.q.timers.clear(timerProbe)
	r.q.timers.set(timerRNR, now+ib.Instant(wire.RNRDelay(uint8(code)&0x1F)))
}

// goBack marks every PSN from psn on to be sent again, because packets were lost or,
// if lost is false, because the responder had no receive.
func (g *goBackN) goBack(psn ib.PSN, lost bool) {
	r := g.r
	if psn.Before(r.win.una) {
		psn = r.win.una
	}
	r.q.arrivals.goesBack(psn, lost)
	r.markFrom(psn)
	r.ackReqs.since = 0
	r.probe.due = 0
}

// markFrom marks all PSNs from psn on to be sent again, but for those that are held. They count as lost: they are
// no longer in flight for the Flow. If all are marked already, nothing was sent since the loss before.
func (r *requester) markFrom(psn ib.PSN) {
	for r.win.waiting() > 0 && psn.Before(r.win.nxt) {
		s := r.slot(r.find(psn))
		n := min(s.from(psn), r.win.nxt.Sub(psn))
		r.q.flow.release(r.win.mark(psn, n), s.cost)
		psn = psn.Add(n)
	}
}

// judgeTimeout decides, when una has moved, whether the ACK timeouts before were too early.
// If the answer comes sooner after the latest timeout than the peer can answer, it belongs to
// a packet sent before it, so nothing was lost (RFC 3522, 3.2, which uses time stamps). An early
// answer is one to packets that have got through, so that a loss is the worst there was (RFC 5682).
func (g *goBackN) judgeTimeout(now ib.Instant, early bool) {
	flow := g.r.q.flow
	switch {
	case g.timeouts == 0:
	case flow.rtt.tooSoon(int64(now - g.timedOutAt)):
		g.r.q.cfg.Stats.SpuriousTimeout++
		flow.undo(1)
	case early:
		flow.undo(cubicBeta)
	}
}

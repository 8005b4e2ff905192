package qp

import "github.com/goroce/goroce/ib"

// This file is the retransmission policy: go-back-N, the only policy that works with
// an IBTA responder, which discards packets beyond a gap. The rest of the requester
// calls lost or goBack and sends the PSNs that are marked.

// goBack marks every PSN from psn on to be sent again, because packets were lost or,
// if lost is false, because the responder had no receive.
func (r *requester) goBack(psn ib.PSN, lost bool) {
	if psn.Before(r.win.una) {
		psn = r.win.una
	}
	r.progress.repeat(psn, lost)
	if lost {
		r.repeats.left = r.repeats.ask
	}
	// Marked packets count as lost: they are no longer in flight for the Flow. If all are marked
	// already, nothing was sent since the loss before.
	for r.win.needed < r.win.inFlight() && psn.Before(r.win.nxt) {
		s := r.slot(r.find(psn))
		n := min(s.from(psn), r.win.nxt.Sub(psn))
		r.q.flow.release(r.win.mark(psn, n), s.cost)
		psn = psn.Add(n)
	}
	r.ackReqs.since = 0
	r.probe.due = 0
}

// lost starts the retransmission from psn on after an answer that shows a loss. The
// responder has discarded the packets behind psn, so the timing of one of them stops.
func (r *requester) lost(now ib.Instant, psn ib.PSN) {
	r.recovering = true
	r.probe.stop()
	r.q.flow.cc.onLoss(now, r.q.flow.rtt.flight())
	r.recover(now, psn)
}

// recover starts a retransmission from psn on, which uses one retry. With no retry left
// the oldest request in flight fails (IBTA 9.9.2.4.1: one counter for timeouts, sequence
// NAKs and implied NAKs). In rdma_rxe a count of 7 means no limit; here it means seven.
func (r *requester) recover(now ib.Instant, psn ib.PSN) {
	st := r.q.cfg.Stats
	if r.retries == 0 {
		st.RetryExceeded++
		r.fail(r.find(r.win.una), ib.WCRetryExcErr)
		return
	}
	r.retries--
	st.CompleterRetry++
	r.goBack(psn, true)
	r.armAck(now)
	r.armProbe(now)
}

// ackTimeout handles the end of the local ACK timeout (IBTA 9.7.6.1.3).
func (r *requester) ackTimeout(now ib.Instant) {
	if r.win.inFlight() == 0 || r.q.timers.isSet(timerRNR) {
		return
	}
	if !r.silenceMeansLoss() {
		r.armAck(now)
		return
	}
	r.q.cfg.Stats.LocalAckTimeout++
	r.recovering = true
	r.probe.askedAgain(now, byTimeout)
	r.q.flow.cc.onTimeout(now, r.q.flow.rtt.flight())
	r.recover(now, r.win.una)
}

// judgeTimeout decides, when una has moved, whether the ACK timeouts before were too early.
// If the answer comes sooner after the latest timeout than the peer can answer, it belongs to
// a packet sent before it, so nothing was lost (RFC 3522, 3.2, which uses time stamps). The
// same is assumed before a round trip was measured, as the peer may be far away.
func (r *requester) judgeTimeout(now ib.Instant) {
	p, rtt := &r.probe, &r.q.flow.rtt
	if p.again == byTimeout && (rtt.mean == 0 || rtt.tooSoon(int64(now-p.againAt))) {
		r.q.flow.cc.undo()
	}
}

// rnrOver ends the wait after an RNR NAK; NextPackets sends again from now on.
func (r *requester) rnrOver(now ib.Instant) { r.armAck(now) }

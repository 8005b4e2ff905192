package qp

import "github.com/goroce/goroce/ib"

// This file is the retransmission policy: go-back-N, which is all that a
// responder of the architecture supports, since it keeps nothing beyond a gap.
// The rest of the requester only asks for recovery and sends what is marked.

// goBack marks every PSN from psn on to be sent again, since packets were lost or
// for want of a receive.
func (r *requester) goBack(psn ib.PSN, lost bool) {
	if psn.Before(r.win.una) {
		psn = r.win.una
	}
	r.progress.repeat(psn, lost)
	if lost {
		r.lead = r.askRepeats
	}
	// What is marked counts as lost: it leaves the destination's account.
	for psn.Before(r.win.nxt) {
		s := r.slot(r.find(psn))
		n := min(s.from(psn), r.win.nxt.Sub(psn))
		r.q.flow.release(r.win.mark(psn, n), s.cost)
		psn = psn.Add(n)
	}
	r.unasked = 0
	r.probe.due = 0
}

// lost sends again from psn on, since an answer shows that a packet was lost. The
// responder has discarded those behind it, so what was timed is sent again, too.
func (r *requester) lost(now ib.Instant, psn ib.PSN) {
	r.gap = true
	r.probe.stop()
	r.q.flow.onLoss(now)
	r.recover(now, psn)
}

// recover spends a retry on sending again from psn on. With no retry left the
// oldest request in flight fails (IBTA 9.9.2.4.1: one counter for timeouts, sequence NAKs
// and implied NAKs). rdma_rxe takes a count of 7 as for ever; here it is seven.
func (r *requester) recover(now ib.Instant, psn ib.PSN) {
	st := r.q.cfg.Stats
	if r.retry == 0 {
		st.RetryExceeded++
		r.fail(r.find(r.win.una), ib.WCRetryExcErr)
		return
	}
	r.retry--
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
	r.gap = true
	r.probe.askedAgain(now, byTimeout)
	r.q.flow.onTimeout(now)
	r.recover(now, r.win.una)
}

// judgeTimeout decides, when una has moved, about the ACK timeouts before. An answer that
// comes sooner after the latest than the peer can answer belongs to what was sent before
// it, so nothing was lost (RFC 3522, 3.2, which tells it by time stamps). Before a round
// trip was measured the peer may be far away.
func (r *requester) judgeTimeout(now ib.Instant) {
	p, rtt := &r.probe, &r.q.flow.rtt
	if p.again == byTimeout && (rtt.mean == 0 || rtt.tooSoon(int64(now-p.againAt))) {
		r.q.flow.undo()
	}
}

// rnrOver ends the wait after an RNR NAK; NextPackets goes on.
func (r *requester) rnrOver(now ib.Instant) { r.armAck(now) }

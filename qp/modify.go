package qp

import "github.com/goroce/goroce/ib"

// Modify changes state and attributes (IBTA 11.2.5.2). A refused call returns an
// *ib.AttrError and changes nothing.
func (q *QP) Modify(now ib.Instant, a *ib.QPAttr, mask ib.QPAttrMask) error {
	q.now = now
	to, err := q.checkModify(a, mask)
	if err != nil {
		return err
	}
	from := q.state
	q.copyAttrs(a, mask)
	if mask&ib.AttrPathMTU != 0 {
		q.wide = a.PathMTU > q.cfg.Limits.MTU
	}
	switch {
	case to == ib.StateReset:
		q.becomeReset()
	case to == ib.StateErr:
		q.because(ib.Cause{Reason: ib.ReasonModified})
		q.becomeErr()
	case from == ib.StateInit && to == ib.StateRTR:
		q.becomeRTR()
	case from == ib.StateRTR && to == ib.StateRTS:
		q.becomeRTS()
	case from == ib.StateRTS && to == ib.StateSQD:
		q.becomeSQD()
	default: // nothing but attributes, or back to RTS
		q.recordState(to)
		q.state = to
		q.req.applyAttrs()
		q.resp.applyAttrs()
	}
	q.pace.setRate(q.attr.RateLimit)
	q.resp.again = nil // the access rights may have changed
	q.settle()
	return nil
}

// Query returns the current attributes. RQPSN is the PSN that is expected next, SQPSN the
// one that is sent next, as in rdma_rxe (rxe_qp_to_attr).
func (q *QP) Query() ib.QPAttr {
	a := q.attr
	a.State, a.CurState, a.Cap = q.state, q.state, q.cfg.Cap
	a.Draining = q.state == ib.StateSQD && q.req.busy()
	if q.state >= ib.StateRTR && q.state <= ib.StateSQE {
		a.RQPSN = q.resp.epsn
	}
	if q.state >= ib.StateRTS && q.state <= ib.StateSQE {
		a.SQPSN = q.req.win.nxt
	}
	return a
}

// copyAttrs copies the attributes in mask.
func (q *QP) copyAttrs(a *ib.QPAttr, mask ib.QPAttrMask) {
	t := &q.attr
	for _, c := range []struct {
		bit  ib.QPAttrMask
		copy func()
	}{
		{ib.AttrPort, func() { t.Port = a.Port }},
		{ib.AttrPKeyIndex, func() { t.PKeyIndex = a.PKeyIndex }},
		{ib.AttrAccess, func() { t.Access = a.Access }},
		{ib.AttrQKey, func() { t.QKey = a.QKey }},
		{ib.AttrAV, func() { t.AH = a.AH }},
		{ib.AttrPathMTU, func() { t.PathMTU = a.PathMTU }},
		{ib.AttrDestQPN, func() { t.DestQPN = a.DestQPN }},
		{ib.AttrRQPSN, func() { t.RQPSN = a.RQPSN }},
		{ib.AttrSQPSN, func() { t.SQPSN = a.SQPSN }},
		{ib.AttrMaxRdAtomic, func() { t.MaxRdAtomic = a.MaxRdAtomic }},
		{ib.AttrMaxDestRdAtomic, func() { t.MaxDestRdAtomic = a.MaxDestRdAtomic }},
		{ib.AttrMinRNRTimer, func() { t.MinRNRTimer = a.MinRNRTimer }},
		{ib.AttrTimeout, func() { t.Timeout = a.Timeout }},
		{ib.AttrRetryCnt, func() { t.RetryCnt = a.RetryCnt }},
		{ib.AttrRNRRetry, func() { t.RNRRetry = a.RNRRetry }},
		{ib.AttrRateLimit, func() { t.RateLimit = a.RateLimit }},
		{ib.AttrSQDNotify, func() { t.SQDNotify = a.SQDNotify }},
	} {
		if mask&c.bit != 0 {
			c.copy()
		}
	}
}

// becomeReset discards all work, without completions (IBTA 10.3.1.1).
func (q *QP) becomeReset() {
	q.req.reset()
	q.resp.reset()
	q.late.reset()
	q.fetch.reset()
	q.timers.clearAll()
	q.events, q.lastWQE, q.lostCompletion = 0, false, false
	q.attr, q.wide = ib.QPAttr{}, false
	q.ReleaseRecorder()
	q.state = ib.StateReset
}

func (q *QP) becomeRTR() {
	q.resp.start()
	q.recordState(ib.StateRTR)
	q.state = ib.StateRTR
}

func (q *QP) becomeRTS() {
	q.req.start()
	q.recordState(ib.StateRTS)
	q.state = ib.StateRTS
	// Nothing could be posted before RTS, so there is nothing to fetch.
}

func (q *QP) becomeSQD() {
	q.recordState(ib.StateSQD)
	q.state = ib.StateSQD
	q.req.checkDrained()
}

// becomeErr ends all work. It abandons requests in flight, and completes everything
// queued with WCWRFlushErr, oldest first (IBTA 10.3.1.5).
func (q *QP) becomeErr() {
	if q.state == ib.StateReset {
		q.state = ib.StateErr
		return
	}
	q.recordState(ib.StateErr)
	q.state = ib.StateErr
	q.req.stop()
	q.timers.clearAll()
	if q.resp.phase != dying {
		q.resp.silence()
	}
	q.flush()
}

// becomeSQE stops the send queue of an unreliable service: the failed request completes
// with its status, those behind it as flushed (IBTA 10.3.1.6). Receives continue; Modify
// to RTS starts the send queue again.
func (q *QP) becomeSQE() {
	q.recordState(ib.StateSQE)
	q.state = ib.StateSQE
	q.timers.clear(timerPace)
	q.req.startFlush()
	q.flushSome()
}

// usesSRQ reports whether receives come from an SRQ. In ERR such a QP takes no more of
// them, and raises EventLastWQE when the last is complete (IBTA 10.2.9.4).
func (q *QP) usesSRQ() bool { return q.cfg.SRQ != nil || q.svc.xrc && q.svc.receives }

// fatal handles an error that no completion can report: invalid content of a ring, or a
// CQ that overran.
func (q *QP) fatal(why ib.Reason) {
	q.because(ib.Cause{Reason: why})
	q.raise(ib.EventQPFatal)
	if q.state != ib.StateErr {
		q.becomeErr()
	}
}

// complete pushes a completion. If the CQ overruns and the completion is lost, settle
// takes the QP to ERR at the end of the input.
func (q *QP) complete(cq *CQ, wc *ib.WC, solicited bool) {
	wc.QPN, wc.Timestamp = q.cfg.Num, q.now
	q.recordCompletion(wc)
	if wc.Status != ib.WCSuccess {
		q.cfg.Stats.countError(wc)
	}
	if !cq.push(wc, solicited, q.cfg.Due) {
		q.lostCompletion = true
	}
}

// settle ends every input: it makes the owner call NextPackets, and takes a QP that
// lost a completion to ERR.
func (q *QP) settle() {
	q.send = true
	if q.flow != nil {
		q.flow.reordering.arrived(q.now, q.cfg.Num, q.resp.epsn)
	}
	q.resp.checkGap(q.now)
	if q.lostCompletion && q.state != ib.StateErr {
		q.fatal(ib.ReasonCQOverrun)
	}
}

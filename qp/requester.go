package qp

import (
	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/mr"
	"github.com/goroce/goroce/wire"
)

// requester turns send requests into request packets. Its slots hold the
// requests that were fetched and have not completed: [oldest, tail), of which
// [oldest, cur) are sent and cur is in the middle of being sent or not begun.
// Counters run on and are masked on use.
type requester struct {
	q     *QP
	slots []sendWQE
	mask  uint32

	oldest, cur, tail uint32

	win   window
	reads readTable
	probe prober
	// placing counts the placements under way of READ data and atomic results.
	placing int
	ssn     ib.PSN // of the latest message begun
	lsn     ib.PSN // credit limit
	// credited says that the responder keeps count: lsn is in force.
	credited bool

	retry    uint8 // retries left of RetryCnt
	rnrRetry uint8 // RNR retries left
	// gap says that a loss was seen and acted upon; further packets of the same
	// flight tell nothing new, until something is acknowledged.
	gap        bool
	askRepeats int    // packets of each repetition that ask for an ACK
	lead       int    // of them, those still to come of the latest
	starved    bool   // what goes next must be fetched first
	cramped    int16  // packets that there was no room for in the Flow; 0 if that is not the reason
	unasked    int    // packets since the last AckReq
	asked      ib.PSN // highest PSN that an answer was asked for
	drained    bool   // SQD was reached and reported

	progress Progress

	// The request whose memory cannot be read, while those before it are not complete:
	// nothing of it, or behind it, is sent.
	stuck     bool
	stuckSlot uint32

	// The request that took the QP to ERR, until it is flushed.
	failed     bool
	failSlot   uint32
	failStatus ib.WCStatus
}

// askMost is how many request packets may pass without asking for an ACK.
const askMost = 32

func (r *requester) init(q *QP) {
	r.q = q
	n, maxSGE, maxInline := q.cfg.SQ.Entries(), q.cfg.SQ.MaxSGE(), q.cfg.SQ.MaxInline()
	r.slots = make([]sendWQE, n)
	r.mask = uint32(n - 1)
	// Each slot has its share of three arrays, and stays within it.
	sges := make([]ib.SGE, n*maxSGE)
	inline := make([]byte, n*maxInline)
	spans := make(mr.SGL, n*maxSGE)
	for i := range r.slots {
		s := &r.slots[i]
		s.wr.SGL, sges = sges[:0:maxSGE], sges[maxSGE:]
		s.wr.Inline, inline = inline[:0:maxInline], inline[maxInline:]
		s.sgl, spans = spans[:0:maxSGE], spans[maxSGE:]
	}
}

func (r *requester) slot(i uint32) *sendWQE { return &r.slots[i&r.mask] }

// start enters RTS.
func (r *requester) start() {
	a := &r.q.attr
	r.win.start(a.SQPSN)
	r.reads.size(a.MaxRdAtomic)
	r.progress.Until = a.SQPSN
	r.ssn, r.lsn, r.credited = 0, 0, false
	r.refill()
	r.gap, r.unasked, r.drained = false, 0, false
	r.asked = a.SQPSN.Add(-1)
	r.probe, r.stuck = prober{}, false
}

// applyAttrs takes over attributes that Modify may change in RTS and SQD.
func (r *requester) applyAttrs() {
	if r.q.state == ib.SQD && r.reads.empty() {
		r.reads.size(r.q.attr.MaxRdAtomic)
	}
	r.refill()
	r.drained = false
}

// refill restores the retry budgets, as every forward progress does.
func (r *requester) refill() {
	r.retry, r.rnrRetry = r.q.attr.RetryCnt, r.q.attr.RNRRetry
}

// fetch copies new requests out of the ring.
func (r *requester) fetch() error {
	for r.tail-r.oldest < uint32(len(r.slots)) {
		s := r.slot(r.tail)
		ok, err := r.q.cfg.SQ.Pop(&s.wr)
		if !ok || err != nil {
			return err
		}
		s.begun, s.sent, s.acked, s.slow, s.late, s.index = false, false, false, false, 0, r.tail
		r.tail++
	}
	return nil
}

// emit fills out with request packets: first a probe, then what must be sent
// again, then what is new. It returns how many elements it has used, and how many
// packets follow them in trains.
func (r *requester) emit(now ib.Instant, out []TxPacket) (n, trains int) {
	if len(out) == 0 {
		return 0, 0
	}
	turn := r.q.flow.takeTurn(r.q)
	if r.q.timers.isSet(timerRNR) {
		return 0, 0
	}
	for n+trains < len(out) {
		if at := r.q.pace.ready(); at > now {
			r.q.timers.set(timerPace, at)
			break
		}
		if r.probe.due == 0 && r.hasWork() && !r.q.flow.admits(r.q, turn) {
			r.q.flow.wait(r.q)
			break
		}
		tx := &out[n]
		if !r.packet(now, tx) {
			r.waitForRoom(n > 0)
			break
		}
		r.q.pace.sent(now, tx.Len+packetOverhead)
		n++
		trains += r.train(tx, len(out)-n-trains)
	}
	if n > 0 && !r.q.timers.isSet(timerAck) {
		r.armAck(now)
	}
	if n > 0 && !r.q.timers.isSet(timerProbe) {
		r.armProbe(now)
	}
	return n, trains
}

// waitForRoom queues for the Flow if the next piece of a READ needs more room than there is:
// before all others, or behind them if something has left in this turn.
func (r *requester) waitForRoom(sent bool) {
	switch {
	case r.cramped == 0:
	case sent:
		r.q.flow.wait(r.q)
	default:
		r.q.flow.waitFirst(r.q, int(r.cramped), r.slot(r.cur).cost)
	}
	r.cramped = 0
}

// packet builds what goes next: a probe, what must be sent again, what is new. One
// whose payload must be fetched first holds back those behind it.
func (r *requester) packet(now ib.Instant, tx *TxPacket) bool {
	r.starved = false
	switch {
	case r.probePacket(now, tx):
		r.leadRepeat(tx)
		return true
	case r.starved:
		return false
	case r.resend(tx):
	case r.starved || !r.next(tx):
		return false
	}
	r.timeRTT(now, tx)
	r.leadRepeat(tx)
	return true
}

// ready reports whether the packet of a PSN in flight can be built again.
func (r *requester) ready(psn ib.PSN) bool {
	r.starved = !r.slot(r.find(psn)).ready(r.q, psn)
	return !r.starved
}

// hasWork reports whether a packet would leave if the Flow had room.
func (r *requester) hasWork() bool {
	return r.win.needed > 0 || r.cur != r.tail
}

// resend builds the oldest packet that must be sent again.
func (r *requester) resend(tx *TxPacket) bool {
	psn, ok := r.win.firstNeeded()
	if !ok || r.blocked(psn) || !r.ready(psn) {
		return false
	}
	s, n := r.repeat(psn, tx)
	r.q.flow.charge(r.win.unmark(psn, n), s.cost)
	if !tx.AckReq {
		r.askForACK(tx, psn.Add(1) == r.win.nxt || psn == s.last() || r.q.flow.full())
	}
	return true
}

// leadRepeat has a packet that is sent again ask for an ACK if it is one of the first
// (AskRepeats). Whether it is timed was decided before: the estimate of the round trip
// is as without AskRepeats.
func (r *requester) leadRepeat(tx *TxPacket) {
	if tx.Again && r.lead > 0 {
		r.lead--
		tx.AckReq = true
	}
}

// repeat builds the packet of a PSN in flight again. It returns the request that the
// PSN belongs to, and how many PSNs from it on the packet stands for.
//
// A READ is asked for again from its first missing response on (IBTA 9.7.5.1.4),
// whichever of its PSNs is wanted. To ask for a part behind that would give up what
// is missing before: rdma_rxe lets a repeated READ replace what it remembers of the
// original, and drops every later request for an earlier part (rxe_resp.c), until
// our retries run out. An atomic is repeated whole, and the responder knows it.
func (r *requester) repeat(psn ib.PSN, tx *TxPacket) (s *sendWQE, n int) {
	s = r.slot(r.find(psn))
	if !sendOps[s.wr.Opcode].answered {
		s.packet(r.q, psn, tx)
		tx.Again = true
		return s, 1
	}
	rd := r.reads.find(psn)
	r.buildRead(rd, rd.next, tx)
	tx.Again = true
	return s, rd.end().Sub(psn)
}

// next builds the next new packet, if the window, the responder and the order of
// messages allow one.
func (r *requester) next(tx *TxPacket) bool {
	if r.stuck || r.win.room() == 0 || !r.begin() {
		return false
	}
	s := r.slot(r.cur)
	op := &sendOps[s.wr.Opcode]
	if op.answered {
		return r.nextRead(s, tx)
	}
	if op.recv && r.outOfCredit(s) {
		return false
	}
	psn := r.win.nxt
	if r.starved = !s.ready(r.q, psn); !r.starved {
		s.packet(r.q, psn, tx)
	}
	r.lookAhead(psn)
	if r.starved {
		return false
	}
	r.gaveOut(s, 1)
	limited := op.recv && r.credited && s.ssn.After(r.lsn)
	r.askForACK(tx, s.sent || limited || r.win.room() == 0 || r.q.flow.full())
	return true
}

// begin makes cur a message that has packets to send, and reports whether there
// is one. Requests that need no packet are done on the way.
func (r *requester) begin() bool {
	for r.cur != r.tail {
		s := r.slot(r.cur)
		if !s.begun && !r.beginNext(s) {
			return false
		}
		if sendOps[s.wr.Opcode].kind != kindLocal {
			return true
		}
		s.sent = true
		r.cur++
		if r.q.svc.reliable { // others: see QP.Sent
			r.complete()
		}
	}
	return false
}

// beginNext starts the message at cur. A message that cannot start waits until
// all before it are complete and fails then, so completions stay in order.
func (r *requester) beginNext(s *sendWQE) bool {
	if !rules[r.q.state].begin {
		return false
	}
	if s.wr.Flags&ib.SendFence != 0 && (!r.reads.empty() || r.placing > 0) {
		return false
	}
	if s.wr.Opcode == ib.WRLocalInv && r.oldest != r.cur {
		return false // requests before it may use the key
	}
	status := ib.WCLocQPOpErr
	if SupportsSend(r.q.cfg.Type, s.wr.Opcode) {
		status = s.begin(r.q, r.win.nxt, r.ssn.Add(1))
	}
	switch {
	case status == ib.WCSuccess && !r.spanHolds(s):
		s.begun = false
		return false
	case status == ib.WCSuccess:
		r.ssn = r.ssn.Add(s.messages())
		return true
	}
	if r.oldest == r.cur {
		r.fail(r.cur, status)
	}
	return false
}

// spanMost is how many PSNs the requests may have that have begun and are not complete. PSNs
// are compared within half of their 2^24 (IBTA 9.7.2). What is in flight is much less, but
// a request whose data is still being placed is not complete long after the peer's answer.
const spanMost = 1 << 23

// spanHolds reports whether the message at cur may begin. One that is alone always may: the
// longest, 2^31 bytes, has spanMost PSNs at an MTU of 256.
func (r *requester) spanHolds(s *sendWQE) bool {
	if r.oldest == r.cur {
		return true
	}
	begun := int((r.win.nxt - r.slot(r.oldest).first) & ib.PSNMask)
	return begun+s.npsn <= spanMost
}

// gaveOut books n PSNs of the message at cur as sent.
func (r *requester) gaveOut(s *sendWQE, n int) {
	r.win.nxt = r.win.nxt.Add(n)
	r.q.flow.charge(n, s.cost)
	if r.win.nxt == s.last().Add(1) {
		s.sent = true
		r.cur++
	}
}

// nextRead builds a request that is answered, or that of the next piece of a READ. A
// READ that is longer than what may be in flight is asked for in pieces, each a
// request of its own: responses have no other flow control.
func (r *requester) nextRead(s *sendWQE, tx *TxPacket) bool {
	if r.reads.full() {
		return false
	}
	psn := r.win.nxt
	if r.starved = !s.ready(r.q, psn); r.starved {
		return false
	}
	left := s.from(psn)
	want := min(left, r.q.flow.piece(s.cost)) // rather one large piece a little later
	switch room := r.q.flow.room(s.cost); {
	case r.win.room() < want && r.win.inFlight() > 0:
		return false
	case room < want && !r.q.flow.Idle():
		r.cramped = int16(want)
		return false
	}
	n := max(min(left, r.win.room(), r.q.flow.room(s.cost)), 1)
	if psn != s.first {
		r.ssn = r.ssn.Add(1)
	}
	rd := r.reads.push(r.cur, psn, n)
	r.buildRead(rd, psn, tx)
	r.gaveOut(s, n)
	return true
}

// buildRead builds the request for the responses from psn to the end of rd.
func (r *requester) buildRead(rd *readReq, psn ib.PSN, tx *TxPacket) {
	s := r.slot(rd.slot)
	if sendOps[s.wr.Opcode].kind != kindRead {
		s.single(r.q, tx)
	} else {
		mtu := uint32(r.q.attr.PathMTU)
		off := uint32(psn.Sub(s.first)) * mtu
		n := min(s.length-off, uint32(rd.end().Sub(psn))*mtu)
		s.header(r.q, tx, wire.OpReadRequest, psn)
		tx.RETH = wire.RETH{VA: s.wr.RemoteAddr + uint64(off), RKey: s.wr.RKey, Len: n}
	}
	r.askForACK(tx, true)
	r.asked = laterPSN(r.asked, rd.end().Add(-1))
}

// askForACK sets AckReq where the packet is one that matters (the last of a
// message, or the last that may leave for now) and often enough in between: a
// responder answers to nothing else.
func (r *requester) askForACK(tx *TxPacket, must bool) {
	r.unasked++
	if must || r.unasked >= r.askEvery() {
		tx.AckReq = true
		r.unasked = 0
		r.asked = laterPSN(r.asked, tx.PSN)
	}
}

// askEvery is how many packets may pass without asking. An ACK for each quarter of
// what may be in flight keeps packets moving while it is under way.
func (r *requester) askEvery() int {
	return min(askMost, max(r.q.flow.cap/4, 1))
}

func laterPSN(a, b ib.PSN) ib.PSN {
	if b.After(a) {
		return b
	}
	return a
}

// silenceMeansLoss reports whether an answer should have come. It need not while
// the Flow, the pacer or slow memory holds back all that is to be sent again, or the
// packet that will ask for an ACK.
func (r *requester) silenceMeansLoss() bool {
	if r.win.needed == r.win.inFlight() {
		return false
	}
	heldBack := r.q.waiting || r.starved || r.q.timers.isSet(timerPace)
	return !heldBack || r.win.holds(r.asked)
}

// outOfCredit applies end-to-end flow control (IBTA 9.7.7.2): beyond the credit
// limit one packet may go, to find out, when nothing else is in flight; a
// message whose first packet was acknowledged has its receive and may go on.
func (r *requester) outOfCredit(s *sendWQE) bool {
	if !r.credited || !s.ssn.After(r.lsn) {
		return false
	}
	if r.win.una.After(s.first) {
		return false
	}
	return r.win.inFlight() > 0
}

// find returns the slot whose message holds a PSN in flight: a binary search,
// since PSNs rise with the slots.
func (r *requester) find(psn ib.PSN) uint32 {
	lo, n := r.oldest, r.cur-r.oldest
	if r.cur != r.tail && r.slot(r.cur).begun {
		n++
	}
	for n > 1 {
		half := n / 2
		if psn.Before(r.slot(lo + half).first) {
			n = half
		} else {
			lo, n = lo+half, n-half
		}
	}
	return lo
}

// armAck starts the local ACK timer, if there is one and something is in flight.
func (r *requester) armAck(now ib.Instant) {
	timeout := int64(wire.AckTimeout(r.q.attr.Timeout))
	if timeout == 0 || r.win.inFlight() == 0 {
		r.q.timers.clear(timerAck)
		return
	}
	// The timer may run for up to four times its value (IBTA 9.7.6.1.3): to a peer that is
	// far away it runs for as long as an answer takes.
	timeout = min(max(timeout, r.q.flow.rtt.rto()), 4*timeout)
	r.q.timers.set(timerAck, now+ib.Instant(timeout))
}

// uncharge takes what is in flight off the Flow's account.
func (r *requester) uncharge() {
	r.releaseRange(r.win.una, r.win.nxt)
	r.win.mark(r.win.una, r.win.inFlight())
	r.probe.stop()
}

// stop gives up all that is in flight; the slots stay for flush.
func (r *requester) stop() {
	for i := r.oldest; i != r.cur; i++ {
		s := r.slot(i)
		s.acked = s.last().Before(r.win.una)
	}
	r.stuck = false
	if f := r.q.flow; f != nil {
		r.releaseRange(r.win.una, r.win.nxt)
		f.remove(r.q)
	}
	r.win.start(r.win.nxt)
	r.reads.reset()
	r.probe.stop()
}

// reset forgets everything.
func (r *requester) reset() {
	r.stop()
	for r.fetch(); r.oldest != r.tail; r.fetch() {
		r.q.cfg.SQ.Release(int(r.tail - r.oldest))
		r.oldest = r.tail
	}
	r.cur = r.tail
	r.win.start(0)
	r.failed, r.placing = false, 0
}

// fail takes the QP to ERR, or to SQE if its service is unreliable (IBTA 10.8.5);
// slot i completes with status, all others as flushed.
func (r *requester) fail(i uint32, status ib.WCStatus) {
	r.failed, r.failSlot, r.failStatus = true, i, status
	r.complete() // what was acknowledged before
	if r.q.svc.reliable {
		r.q.becomeErr()
	} else {
		r.q.becomeSQE()
	}
}

// failInTurn fails slot i, whose memory cannot be read, as soon as all requests
// before it are complete: completions come in order, and the first error is the
// cause of those behind it.
func (r *requester) failInTurn(i uint32) {
	if !r.stuck || i-r.oldest < r.stuckSlot-r.oldest {
		r.stuck, r.stuckSlot = true, i
	}
	r.complete()
}

// blocked reports whether a PSN in flight is of a request that is stuck, or behind it.
func (r *requester) blocked(psn ib.PSN) bool {
	return r.stuck && r.find(psn)-r.oldest >= r.stuckSlot-r.oldest
}

// flush completes every request, oldest first: those whose data is here, and that
// waited only for its placement, with success; the one that failed with its status;
// the rest with WCWRFlushErr.
func (r *requester) flush() {
	for good := true; ; {
		for ; r.oldest != r.tail; r.oldest++ {
			status := ib.WCWRFlushErr
			switch {
			case r.failed && r.oldest == r.failSlot:
				status, r.failed, good = r.failStatus, false, false
			case good && r.slot(r.oldest).acked:
				status = ib.WCSuccess
			}
			r.finish(r.oldest, status)
		}
		r.cur = r.oldest
		if err := r.fetch(); err != nil || r.oldest == r.tail {
			return
		}
	}
}

// finish gives the ring entry of slot i back and makes its completion.
func (r *requester) finish(i uint32, status ib.WCStatus) {
	s := r.slot(i)
	if s.slow {
		r.q.fetch.forget(requests, i)
	}
	r.q.cfg.SQ.Release(1)
	op := &sendOps[s.wr.Opcode]
	if status == ib.WCSuccess && op.wc == ib.WCSend {
		r.q.cfg.Stats.RDMASends++
	}
	if status == ib.WCSuccess && !r.q.cfg.SigAll && s.wr.Flags&ib.SendSignaled == 0 {
		return
	}
	wc := ib.WC{ID: s.wr.ID, Status: status, Opcode: op.wc}
	if op.kind == kindRead || op.kind == kindAtomic {
		wc.ByteLen = s.length
	}
	r.q.complete(r.q.cfg.SendCQ, &wc, false)
}

package qp

import (
	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/mr"
	"github.com/goroce/goroce/wire"
)

// The completer is the part of the requester that handles responses: it moves the
// window and completes requests in order.

// handleResponse handles a response packet (IBTA 9.7.5.2, table 42).
func (r *requester) handleResponse(now ib.Instant, p *wire.Packet) {
	st := r.q.cfg.Stats
	r.recovery.heard++
	switch p.Opcode {
	case wire.SACKOpcode:
		r.selected(now, p)
		return
	case wire.CNP:
		st.RcvdCNPs++
		r.q.resp.losesReads(now).congested(now)
		r.q.flow.marks.RcvdCNPs++
		r.q.flow.onMark(now)
		return
	}
	if !r.win.holds(p.PSN) {
		if p.PSN.Before(r.win.una) {
			r.q.answeredTwice(p)
			r.credit(p)
		} else {
			st.GhostResponse++
			r.q.judge(Unexpected)
		}
		return
	}
	r.credit(p)
	switch {
	case p.Opcode.IsReadResp():
		r.readResponse(now, p)
	case p.Opcode.Op() == wire.OpAtomicAck:
		r.atomicACK(now, p)
	case p.AETH.Syndrome.IsAck():
		r.acknowledge(now, p.PSN.Add(1))
	case p.AETH.Syndrome.IsRNR():
		r.q.cfg.Stats.RcvdRNRErr++
		r.q.kept().traffic.RcvdRNR++
		r.acknowledge(now, p.PSN)
		r.recovery.notReady(now, p.PSN, p.AETH.Syndrome)
	default:
		r.nak(now, p)
	}
	r.complete()
	r.checkDrained()
}

// acknowledge handles that the peer has answered everything before psn: una moves there, or stops at a READ or atomic
// whose response has not arrived, and so is lost (selective.go).
func (r *requester) acknowledge(now ib.Instant, psn ib.PSN) {
	if rd := r.reads.oldest(); r.sel != nil || rd != nil && rd.next.Before(psn) {
		r.beyond(now, psn)
		return
	}
	r.moveTo(now, psn)
}

// moveTo advances una. Forward progress restarts the ACK timer (IBTA 9.9.2.4.1).
func (r *requester) moveTo(now ib.Instant, psn ib.PSN) {
	n := psn.Sub(r.win.una)
	if n <= 0 {
		return
	}
	known, lost := r.win.held.n+r.win.sacked.n, r.win.need.n
	r.releaseRange(r.win.una, psn)
	known -= r.win.held.n + r.win.sacked.n
	r.win.una = psn
	r.q.arrivals.Requests.confirm(psn, n)
	r.q.flow.onACK(now, n-known)
	r.recovery.answered(now, r.win.need.n < lost)
	r.q.timers.clear(timerRNR)
	r.armAck(now)
	r.heard(now)
}

// releaseRange releases the PSNs [from, to) from the Flow, except those that are to be sent again or
// held, which are released already.
func (r *requester) releaseRange(from, to ib.PSN) {
	if !from.Before(to) {
		return
	}
	released := r.win.need.n+r.win.held.n+r.win.sacked.n > 0 || r.again != nil
	for i := r.find(from); from.Before(to); i++ {
		s := r.slot(i)
		n := min(s.from(from), to.Sub(from)) // 0 for a request without packets
		done := 0
		if released {
			r.again.remove(from, n)
			done = r.win.unmark(from, n) + r.win.held.remove(from, n) + r.win.sacked.remove(from, n)
		}
		r.q.flow.release(n-done, s.cost)
		from = from.Add(n)
	}
}

// complete finishes the oldest requests that are acknowledged and placed. It fails the
// unreadable request once all before it are complete.
func (r *requester) complete() {
	n := r.done()
	if n > 0 { // before the completions: behind them the application posts again at once
		r.q.cfg.SQ.Release(n)
	}
	for range n {
		if r.unreadable.is(r.oldest) { // the peer had received all of it
			r.unreadable.set = false
		}
		r.oldest++
		r.finish(r.oldest-1, ib.WCSuccess)
	}
	if r.unreadable.is(r.oldest) {
		r.unreadable.set = false
		r.failMemory(r.oldest)
	}
}

// done returns how many of the oldest requests are acknowledged and placed.
func (r *requester) done() (n int) {
	if r.q.state == ib.StateErr {
		return 0
	}
	for i := r.oldest; i != r.cur; i++ {
		if s := r.slot(i); s.late > 0 || !s.last().Before(r.win.una) || r.failed.is(i) {
			break
		}
		n++
	}
	return n
}

// checkDrained raises EventSQDrained, if the application asked for it, once nothing is
// under way in SQD (IBTA 10.3.1.7).
func (r *requester) checkDrained() {
	if r.q.state != ib.StateSQD || r.drainReported || r.busy() {
		return
	}
	r.drainReported = true
	if r.q.attr.SQDNotify {
		r.q.raise(ib.EventSQDrained)
	}
}

// busy reports whether a message is under way: in flight, partly sent, or waiting for
// placements of its data.
func (r *requester) busy() bool {
	return r.oldest != r.cur || r.cur != r.tail && r.slot(r.cur).begun
}

// credit sets lsn from the credit count of an AETH: the responder has receives for
// the messages up to MSN + credits (IBTA 9.7.7.2.2). rdma_rxe always sends the code
// for "no credits counted".
func (r *requester) credit(p *wire.Packet) {
	if p.Opcode.Op() == wire.OpReadRespMiddle || !p.AETH.Syndrome.IsAck() {
		return
	}
	n, counted := p.AETH.Syndrome.Credits()
	if !counted {
		r.credits.counted = false
		return
	}
	lsn := p.AETH.MSN.Add(n)
	if !r.credits.counted || lsn.After(r.credits.lsn) {
		r.credits.counted, r.credits.lsn = true, lsn
	}
}

// answered returns the READ or atomic that p answers, and its slot. Everything before p is answered, too. It
// returns nil if p must be ignored.
func (r *requester) answered(now ib.Instant, p *wire.Packet) (*readReq, uint32) {
	rd := r.reads.find(p.PSN)
	if rd == nil {
		r.q.cfg.Stats.GhostResponse++
		r.q.judge(Unexpected)
		return nil, 0
	}
	if _, held := r.win.held.run(p.PSN, 1); held {
		r.q.answeredTwice(p)
		return nil, 0
	}
	r.acknowledge(now, p.PSN)
	return r.reads.find(p.PSN), r.find(p.PSN) // acknowledge may have moved the table
}

// readResponse handles one packet of the data of a READ, or the empty response of a
// FLUSH or ATOMIC WRITE.
func (r *requester) readResponse(now ib.Instant, p *wire.Packet) {
	rd, i := r.answered(now, p)
	if rd == nil {
		return
	}
	s := r.slot(i)
	kind := sendOps[s.wr.Opcode].kind
	if kind == kindAtomic || !r.rightLength(rd, s, p) {
		r.fail(i, ib.WCBadRespErr, badResponse(p))
		return
	}
	off := uint64(p.PSN.Sub(s.first)) * uint64(r.q.attr.PathMTU)
	if kind == kindRead && !r.place(i, off, p.Payload) {
		return
	}
	r.taken(now, rd, p.PSN)
}

// taken handles that a response was taken.
func (r *requester) taken(now ib.Instant, rd *readReq, psn ib.PSN) {
	if r.sel != nil {
		r.takenBeyond(now, rd, psn)
		return
	}
	rd.next = psn.Add(1)
	if rd.next == rd.end() {
		r.reads.pop()
	}
	r.moveTo(now, psn.Add(1))
}

// rightLength checks the length of a READ response at its position in the message:
// all packets are full except the last, and the response ends where the request ends, or
// where one for a part of it does. FIRST and MIDDLE are treated alike: after a repeated request
// any packet may be FIRST.
func (r *requester) rightLength(rd *readReq, s *sendWQE, p *wire.Packet) bool {
	mtu := int(r.q.attr.PathMTU)
	isLast := p.PSN.Add(1) == rd.end()
	want := min(mtu, int(s.length)-p.PSN.Sub(s.first)*mtu)
	if sendOps[s.wr.Opcode].kind != kindRead {
		want = 0
	}
	return len(p.Payload) == want && (p.Opcode.Ends() == isLast || !isLast && r.sel != nil)
}

// atomicACK handles the result of a CAS or FAA: the value that memory held before.
func (r *requester) atomicACK(now ib.Instant, p *wire.Packet) {
	rd, i := r.answered(now, p)
	if rd == nil {
		return
	}
	s := r.slot(i)
	if sendOps[s.wr.Opcode].kind != kindAtomic {
		r.fail(i, ib.WCBadRespErr, badResponse(p))
		return
	}
	putNative(s.result[:], p.AtomicAck)
	if r.place(i, 0, s.result[:]) {
		r.taken(now, rd, p.PSN)
	}
}

// place scatters response data into the request's memory. It returns false if there
// is no room for placements now, or if the memory cannot be written, which fails the
// request.
func (r *requester) place(i uint32, off uint64, data []byte) bool {
	s := r.slot(i)
	late, err := r.q.late.scatter(r.q, s.sgl, off, data, lateOwner{requester: true, slot: i})
	switch {
	case err == mr.ErrNoRoom:
		r.q.cfg.Stats.DropNoResource++
		r.q.judge(NoRoom)
		return false
	case err != nil:
		r.failMemory(i)
		return false
	}
	s.late += late
	r.placing += int32(late)
	return true
}

// nakStatus maps NAK codes to completion statuses (IBTA 9.7.5.2.9 on); unknown
// codes count as operational errors, as with rdma_rxe.
func nakStatus(s wire.Syndrome) ib.WCStatus {
	switch s {
	case wire.NAKInvalidRequest:
		return ib.WCRemInvReqErr
	case wire.NAKRemoteAccess:
		return ib.WCRemAccessErr
	}
	return ib.WCRemOpErr
}

// nak handles a NAK. A sequence NAK acknowledges all PSNs before its own and asks for
// all from there on; any other NAK takes the QP to ERR.
func (r *requester) nak(now ib.Instant, p *wire.Packet) {
	if p.AETH.Syndrome != wire.NAKSequence {
		r.moveToFailed(now, p.PSN)
		r.fail(r.find(p.PSN), nakStatus(p.AETH.Syndrome), nakCause(p))
		return
	}
	r.q.cfg.Stats.RcvdSeqErr++
	r.probeAnswered(now)
	r.acknowledge(now, p.PSN)
	if r.q.selects() {
		r.missesOnly(now, p.PSN)
		return
	}
	if !r.mayBeLate(now, p.PSN) {
		r.recovery.lost(now, p.PSN)
	}
}

// moveToFailed completes the requests that a fatal NAK acknowledges: all before it, up
// to a READ or atomic whose response has not arrived.
func (r *requester) moveToFailed(now ib.Instant, psn ib.PSN) {
	if rd := r.reads.oldest(); rd != nil && rd.next.Before(psn) {
		psn = rd.next
	}
	r.moveTo(now, psn)
	r.complete()
}

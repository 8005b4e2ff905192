package qp

import (
	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/mr"
	"github.com/goroce/goroce/qp/ring"
	"github.com/goroce/goroce/wire"
)

// responder executes the peer's requests in PSN order and answers them. It keeps
// pending answers as state (owed, and the resources that have responses to send),
// never as packets; respond.go builds the packets.
type responder struct {
	q     *QP
	phase phase
	twice uint8  // SENDs and WRITEs that have arrived twice, modulo 256
	epsn  ib.PSN // expected PSN
	msn   ib.PSN // messages completed

	ackSent ib.PSN // what acked was when the latest answer left

	srq *SRQ // where receives come from, if not from RQ; XRC: the SRQ of the latest request

	// The message of which more packets are expected.
	inside  message
	toFlush uint32 // receives in RQ that flush is to complete
	recv    recvWQE
	write   [1]mr.Span // WRITE: the checked target
	done    uint64     // bytes of the message that have arrived
	again   *mr.Region // region of the latest WRITE, for header prediction; nil if the next needs all checks

	res     resourceTable
	commits commitQueue
	early   *reorderQueue // nil if no request is kept
	lossy   *lossyReads   // nil until READ responses are lost

	// acked is the latest PSN of a SEND or WRITE that may be acknowledged. READs and atomics are acknowledged by their
	// responses alone (IBTA 9.7.5.1.2), so a plain ACK never has a PSN of theirs: rdma_rxe as the requester would
	// complete the READ by it, without data (rxe_comp.c check_ack). rdma_rxe's ack_psn is the same.
	acked ib.PSN
	owed  owed
}

// phase says how far the connection has come.
type phase uint8

const (
	idle    phase = iota // no request of the connection has arrived
	open                 // requests are executed
	refused              // a request was refused: those behind it are dropped
	dying                // the QP is in ERR, and the NAK of that request is still to be sent (IBTA 9.9.3)
)

// owed is what the requester is to be told, apart from the responses of READs and atomics:
// an ACK, a NAK, or both.
type owed struct {
	acks  int32         // requests to acknowledge, by one ACK of responder.acked; 0: none
	psn   ib.PSN        // of nak
	nak   wire.Syndrome // 0: none
	again bool          // one of the requests of acks is a duplicate
	held  bool          // nak had to wait until the data before psn was in memory

	// discarding says that a request was dropped, for a gap, an RNR NAK or lack of room. Until it
	// comes again, later PSNs are dropped without a NAK (IBTA 9.7.5.1.2).
	discarding bool
}

// message says which kind of message a MIDDLE or LAST packet may continue.
type message uint8

const (
	noMessage message = iota
	inSend
	inWrite
)

// recvWQE is the receive that the current message uses.
type recvWQE struct {
	wr    ib.RecvWR
	sgl   mr.SGL
	total uint64
	held  bool // taken from the queue and not completed
	srq   *SRQ // the queue it was taken from; nil for RQ
	cq    *CQ  // gets its completion
	// spoilt says that a placement in its memory failed.
	spoilt bool
	// invalid is the status that the receive completes with if its request is invalid; else
	// WCSuccess.
	invalid ib.WCStatus
}

func (r *responder) init(q *QP) {
	r.q = q
	r.srq = q.cfg.SRQ
	if q.svc.xrc {
		r.recv.wr.SGL = make([]ib.SGE, 0, ring.MaxSGE)
	} else if r.srq != nil {
		r.srq.prepare(&r.recv.wr)
	} else {
		q.cfg.RQ.Prepare(&r.recv.wr)
	}
	r.recv.sgl = make(mr.SGL, 0, cap(r.recv.wr.SGL))
	r.commits.q = q
}

// start initializes the responder for RTR.
func (r *responder) start() {
	a := &r.q.attr
	r.epsn, r.acked, r.msn = a.RQPSN, a.RQPSN.Add(-1), 0
	r.ackSent, r.q.arrivals.Answers.Until = r.acked, r.epsn
	r.res.size(a.MaxDestRdAtomic)
	r.inside = noMessage
	r.lossy = nil
	r.silence()
	r.commits.reset()
	r.phase, r.twice = idle, 0
}

func (r *responder) applyAttrs() {
	if int(r.res.granted) != r.q.attr.MaxDestRdAtomic {
		r.res.size(r.q.attr.MaxDestRdAtomic)
	}
}

// silence discards all pending answers.
func (r *responder) silence() {
	r.owed = owed{}
	r.res.cancel()
	r.lossy.forget(nil)
	if r.early != nil {
		r.early.drop(r.q.cfg.Limits.Reorder)
	}
}

// reset discards all pending work, receives included, without completions.
func (r *responder) reset() {
	r.silence()
	r.commits.reset()
	r.phase, r.inside = idle, noMessage
	r.q.cfg.RQ.Discard()
	r.recv.held, r.toFlush = false, 0
}

// popReceive copies the next receive out of its ring, if one is posted.
func (r *responder) popReceive() (ok bool, err error) {
	r.recv.cq = r.q.cfg.RecvCQ
	if r.srq != nil {
		ok, err = r.srq.pop(&r.recv.wr, r.q.cfg.Due)
		if r.srq.cq != nil {
			r.recv.cq = r.srq.cq
		}
	} else if ok, err = r.q.cfg.RQ.Pop(&r.recv.wr); ok {
		r.q.cfg.RQ.Release(1)
	}
	if ok {
		r.recv.held, r.recv.srq, r.recv.spoilt, r.recv.invalid = true, r.srq, false, ring.Status(err)
		return true, nil
	}
	return false, err
}

// pd returns the protection domain that a request is checked against: for XRC that of
// the SRQ which the request names (IBTA A14.2.4).
func (r *responder) pd() *mr.PD {
	if r.q.svc.xrc {
		return r.srq.pd
	}
	return r.q.cfg.PD
}

// recvPD returns the protection domain of a receive's memory: an SRQ has its own.
func (r *responder) recvPD() *mr.PD {
	if r.srq != nil {
		return r.srq.pd
	}
	return r.q.cfg.PD
}

// chooseSRQ finds the SRQ that an XRC request names. All packets of a message
// name the same one.
func (r *responder) chooseSRQ(p *wire.Packet) bool {
	s := r.q.cfg.SRQs.SRQ(p.XRCSRQ)
	if s == nil || s.xrcd != r.q.cfg.XRCD || r.inside != noMessage && s != r.srq {
		return false
	}
	r.srq = s
	return true
}

// handle handles a request packet (IBTA 9.7.4.1, figure 89): it checks the PSN, then
// the order of opcodes, then executes the operation.
func (r *responder) handle(now ib.Instant, p *wire.Packet) {
	if r.phase >= refused {
		r.q.judge(Behind)
		return
	}
	if r.foreseen(now, p) {
		return
	}
	switch d := p.PSN.Sub(r.epsn); {
	case d > 0:
		r.beyond(now, p)
		return
	case d < 0:
		r.duplicate(now, p)
		return
	}
	r.owed.discarding = false
	r.raiseCommEst()
	switch {
	case !r.commits.room():
		r.noRoom()
	case !r.inOrder(p):
		r.refuse(now, p, wire.NAKInvalidRequest, ib.Cause{Reason: ib.ReasonSequence})
	case r.q.svc.xrc && !r.chooseSRQ(p):
		r.refuse(now, p, wire.NAKInvalidRequest, ib.Cause{Reason: ib.ReasonSRQ})
	case p.Opcode.IsSend():
		r.send(now, p)
	case p.Opcode.IsWrite():
		r.writeRequest(now, p)
	case p.Opcode.IsRead():
		r.readRequest(now, p)
	default:
		r.singleRequest(now, p)
	}
}

// raiseCommEst raises EventCommEst for the first packet that arrives in RTR. It shows
// that the peer is ready before the connection manager's last message says so (IBTA
// 11.6.3.2).
func (r *responder) raiseCommEst() {
	if r.phase != idle {
		return
	}
	r.phase = open
	if r.q.state == ib.StateRTR {
		r.q.raise(ib.EventCommEst)
	}
}

// noRoom drops a packet because there is no room for placements. The peer sends it
// again in a probe or after its ACK timeout. A sequence NAK would make it do so at
// once, and use up its retries long before slow memory is ready.
func (r *responder) noRoom() {
	r.q.cfg.Stats.DropNoResource++
	r.q.judge(NoRoom)
	r.owed.discarding = true
	if !r.q.svc.reliable {
		r.inside = noMessage
	}
}

// inOrder checks the opcode against the message that is under way, and the
// payload against the path MTU (IBTA 9.7.4.1.4, 9.7.4.1.6): FIRST and MIDDLE must be
// full, LAST must not be empty.
func (r *responder) inOrder(p *wire.Packet) bool {
	want := noMessage
	if !p.Opcode.Starts() && (p.Opcode.IsSend() || p.Opcode.IsWrite()) {
		want = inSend
		if p.Opcode.IsWrite() {
			want = inWrite
		}
	}
	if r.inside != want {
		return false
	}
	mtu, n := int(r.q.attr.PathMTU), len(p.Payload)
	switch {
	case !p.Opcode.Ends():
		return n == mtu
	case !p.Opcode.Starts():
		return n > 0 && n <= mtu
	}
	return n <= mtu
}

// send handles a packet of a SEND.
func (r *responder) send(now ib.Instant, p *wire.Packet) {
	if p.Opcode.Starts() && !r.openSend(now, p) {
		return
	}
	if r.done+uint64(len(p.Payload)) > r.recv.total {
		r.tooLong(now, p)
		return
	}
	c := r.newCommit(p)
	late, err := r.q.late.scatter(r.q, r.recv.sgl, r.done, p.Payload, lateOwner{slot: r.commits.next()})
	if err == mr.ErrNoRoom {
		r.noRoom() // the receive stays in use
		return
	}
	if err != nil {
		r.failReceive(now, p, ib.WCLocProtErr, wire.NAKRemoteOp, gone(r.q.cfg.Table, r.recv.sgl))
		return
	}
	r.done += uint64(len(p.Payload))
	r.inside = inSend
	if p.Opcode.Ends() {
		r.q.cfg.Stats.RDMARecvs++
		r.receiveDone(&c, p, ib.WCRecv, uint32(r.done))
	}
	r.accept(now, p, c, late)
}

// tooLong ends a message that is longer than its receive. On a reliable connection the
// requester gets a NAK for an invalid request, and the receive completes with a length
// error (IBTA 9.7.4.1.6; rdma_rxe reports it as a remote one). Otherwise the message is
// dropped and the receive stays in use; one from an SRQ completes with the error (IBTA
// table 63: classes D and E).
func (r *responder) tooLong(now ib.Instant, p *wire.Packet) {
	why := ib.Cause{Reason: ib.ReasonTooLong, Length: r.done + uint64(len(p.Payload)), Size: r.recv.total}
	if r.q.svc.datagram {
		why.Length += ib.GRHLen
	}
	if !r.q.svc.reliable {
		r.note(p, why)
		if r.srq != nil {
			var c commit
			r.failedReceive(&c, ib.WCLocLenErr)
			r.commit(now, c, 0)
		}
		r.drop()
		return
	}
	r.failReceive(now, p, ib.WCLocLenErr, wire.NAKInvalidRequest, why)
}

// openSend finds a receive for a SEND and resolves its memory.
func (r *responder) openSend(now ib.Instant, p *wire.Packet) bool {
	if !r.takeReceive(now, p) {
		return false
	}
	var fault mr.Fault
	r.recv.sgl, fault = r.q.cfg.Table.Resolve(r.recvPD(), r.recv.wr.SGL, ib.LocalWrite, r.recv.sgl[:0])
	if fault != mr.FaultNone {
		why := explainSGL(r.q.cfg.Table, r.recvPD(), r.recv.wr.SGL, ib.LocalWrite)
		r.failReceive(now, p, ib.WCLocProtErr, wire.NAKRemoteOp, why)
		return false
	}
	r.recv.total, r.done = r.recv.sgl.Len(), 0
	return true
}

// takeReceive takes the next receive, unless one is still in use from a packet that was
// dropped. If none is posted, a reliable connection sends an RNR NAK (IBTA 9.7.5.2.8)
// and an unreliable one drops the message; p has no effect then.
func (r *responder) takeReceive(now ib.Instant, p *wire.Packet) bool {
	if r.recv.held {
		return true
	}
	ok, err := r.popReceive()
	switch {
	case err != nil && !r.q.svc.reliable:
		r.q.fatal(ib.ReasonRing)
	case err != nil:
		r.note(p, ib.Cause{Reason: ib.ReasonRing})
		c := refusal(p.PSN, wire.NAKRemoteOp)
		c.event = ib.EventQPFatal
		r.end(now, c)
	case !ok && !r.q.svc.reliable:
		r.q.cfg.Stats.OutOfBuffer++
		r.note(p, ib.Cause{Reason: ib.ReasonNoReceive})
		r.drop()
	case !ok:
		r.q.cfg.Stats.SendRNRErr++
		r.q.kept().traffic.SentRNR++
		r.q.cfg.Stats.OutOfBuffer++
		r.notReady(p)
		r.owed.discarding = true
		r.oweNAK(p.PSN, wire.RNRNak(r.q.attr.MinRNRTimer))
	case r.recv.invalid != ib.WCSuccess:
		r.failReceive(now, p, r.recv.invalid, wire.NAKRemoteOp, ib.Cause{Reason: ib.ReasonBadReceive})
		return false
	}
	return ok
}

// failReceive completes the receive in use with status and refuses its request with code.
func (r *responder) failReceive(now ib.Instant, p *wire.Packet, status ib.WCStatus, code wire.Syndrome, why ib.Cause) {
	r.note(p, why)
	c := refusal(p.PSN, code)
	r.failedReceive(&c, status)
	r.end(now, c)
}

// failedReceive stores a completion of the receive in use with an error in c.
func (r *responder) failedReceive(c *commit, status ib.WCStatus) {
	r.recv.held = false
	c.hasWC, c.cq, c.srq = true, r.recv.cq, r.recv.srq
	c.wc = ib.WC{ID: r.recv.wr.ID, Status: status, Opcode: ib.WCRecv,
		VendorErr: r.q.history.refused.Cause.Reason.VendorErr()}
}

// receiveDone stores the completion of the receive in use in c.
func (r *responder) receiveDone(c *commit, p *wire.Packet, op ib.WCOpcode, n uint32) {
	c.hasWC, c.solicited, c.cq, c.srq = true, p.SE, r.recv.cq, r.recv.srq
	c.wc = ib.WC{ID: r.recv.wr.ID, Opcode: op, ByteLen: n}
	h := p.Opcode.Headers()
	if h&wire.HasImm != 0 {
		c.wc.Flags, c.wc.Imm = ib.WCWithImm, p.Imm
	}
	if h&wire.HasIETH != 0 {
		c.wc.Flags, c.wc.InvalidatedKey = ib.WCWithInv, p.InvKey
	}
	r.recv.held = false
}

// writeRequest handles a packet of an RDMA WRITE.
func (r *responder) writeRequest(now ib.Instant, p *wire.Packet) {
	if p.Opcode.Starts() {
		if !r.openWrite(now, p) {
			return
		}
		r.done = 0
	}
	left := uint64(r.write[0].Len) - r.done
	n := uint64(len(p.Payload))
	if n > left || p.Opcode.Ends() && n != left {
		r.refuse(now, p, wire.NAKInvalidRequest, ib.Cause{Reason: ib.ReasonLength, Length: r.done + n,
			Size: uint64(r.write[0].Len)})
		return
	}
	withImm := p.Opcode.Headers()&wire.HasImm != 0
	if withImm && !r.takeReceive(now, p) {
		return
	}
	c := r.newCommit(p)
	late, err := r.q.late.scatter(r.q, r.write[:], r.done, p.Payload, lateOwner{slot: r.commits.next()})
	if err == mr.ErrNoRoom {
		r.noRoom()
		return
	}
	if err != nil {
		r.refuse(now, p, wire.NAKRemoteAccess, gone(r.q.cfg.Table, r.write[:]))
		return
	}
	if p.Opcode.Starts() {
		r.q.cfg.Stats.RxWrites++
	}
	r.done += n
	r.inside = inWrite
	if withImm {
		r.receiveDone(&c, p, ib.WCRecvImm, uint32(r.done))
	}
	r.accept(now, p, c, late)
}

// openWrite checks the RETH of a WRITE. If the length is 0, address and key are not
// checked (IBTA 9.7.4.1.5).
func (r *responder) openWrite(now ib.Instant, p *wire.Packet) bool {
	if why := r.allowed(p, ib.RemoteWrite); why.Reason != ib.ReasonNone {
		r.refuse(now, p, wire.NAKInvalidRequest, why)
		return false
	}
	if !r.checkRETH(now, p, ib.RemoteWrite, &r.write[0]) {
		return false
	}
	r.again = r.write[0].R
	return true
}

// checkRETH checks address, key and length against the QP's protection domain.
func (r *responder) checkRETH(now ib.Instant, p *wire.Packet, need ib.Access, span *mr.Span) bool {
	*span = mr.Span{}
	if p.RETH.Len == 0 {
		return true
	}
	s, fault := r.q.cfg.Table.CheckRemote(r.pd(), r.q.cfg.Num, p.RETH.RKey, p.RETH.VA, uint64(p.RETH.Len), need)
	if fault != mr.FaultNone {
		r.refuse(now, p, wire.NAKRemoteAccess,
			r.q.cfg.Table.Explain(fault, p.RETH.RKey, p.RETH.VA, uint64(p.RETH.Len), need))
		return false
	}
	*span = s
	return true
}

// readRequest handles an RDMA READ request, which takes one PSN for each response packet.
func (r *responder) readRequest(now ib.Instant, p *wire.Packet) {
	why := r.allowed(p, ib.RemoteRead)
	if why.Reason == ib.ReasonNone && !r.res.free() {
		why = r.tooMany()
	}
	if why.Reason != ib.ReasonNone {
		r.refuse(now, p, wire.NAKInvalidRequest, why)
		return
	}
	var span [1]mr.Span
	if !r.checkRETH(now, p, ib.RemoteRead, &span[0]) {
		return
	}
	if !r.q.fits(int(p.RETH.Len)) {
		r.refuse(now, p, wire.NAKRemoteOp, ib.Cause{Reason: ib.ReasonFrame, Length: uint64(p.RETH.Len),
			Size: uint64(r.q.cfg.Limits.frame())})
		return
	}
	mtu := int(r.q.attr.PathMTU)
	n := max(1, (int(p.RETH.Len)+mtu-1)/mtu)
	res := r.remember(resource{kind: resRead, op: p.Opcode.Op(), first: p.PSN, npsn: int32(n), a: p.RETH.VA,
		b: number(uint64(p.RETH.RKey)), span: span})
	r.q.cfg.Stats.RxReads++
	r.lossy.asks(now, int(p.RETH.Len), len(r.res.ring))
	r.epsn = p.PSN.Add(n)
	if r.early != nil && n >= windowNear {
		r.early.drop(r.q.cfg.Limits.Reorder) // no kept packet may wait until PSNs come round to its own
	}
	r.commit(now, commit{kind: commitRead, res: res, psn: r.epsn.Add(-1), messages: 1}, 0)
}

// remember stores a new READ or atomic in the resource table, where it replaces the
// oldest.
func (r *responder) remember(res resource) *resource {
	old := &r.res.ring[r.res.tail]
	if old.kind == resRead {
		r.q.fetch.forget(responses, uint32(old.first))
	}
	r.lossy.forget(old)
	if old.kind != resNone { // the peer has its answer, or it could not have sent this request
		r.q.arrivals.Answers.confirm(old.first.Add(int(old.npsn)), int(old.npsn))
	}
	return r.res.push(res)
}

// duplicate handles a request that was executed before (IBTA 9.7.5.1.3): SENDs and
// WRITEs are acknowledged again, READs read memory again, and atomics are answered with
// the result that their resource keeps.
func (r *responder) duplicate(now ib.Instant, p *wire.Packet) {
	r.q.cfg.Stats.DuplicateRequest++
	r.q.judge(Duplicate)
	again := false
	switch {
	case p.Opcode.IsSend() || p.Opcode.IsWrite():
		r.owed.again = true
		r.twice++
		if r.q.flow != nil {
			r.q.flow.reordering.repeated(now, r.q.cfg.Num, p.PSN)
		}
		r.oweACK(now, 1)
	case p.Opcode.IsRead():
		again = r.readAgain(now, p)
	default:
		again = r.res.answerAgain(p.PSN)
	}
	if again {
		r.q.arrivals.answersAgain(p.PSN)
	}
}

// refuse refuses a request that cannot be executed with a NAK of the given code.
func (r *responder) refuse(now ib.Instant, p *wire.Packet, code wire.Syndrome, why ib.Cause) {
	r.note(p, why)
	r.end(now, refusal(p.PSN, code))
}

// end ends a reliable connection by a refusal, once the requests before it are carried out. Those
// behind it are dropped (IBTA 9.9.3). A message of an unreliable service is dropped, unless its
// receive fails: that ends the connection too.
func (r *responder) end(now ib.Instant, c commit) {
	if !r.q.svc.reliable && !c.hasWC {
		r.drop()
		return
	}
	r.phase, r.inside = refused, noMessage
	r.commit(now, c, 0)
}

// oweNAK makes a NAK pending. emit sends it once everything before its PSN is in memory;
// it also replaces a pending ACK, since a NAK acknowledges what is before it.
func (r *responder) oweNAK(psn ib.PSN, code wire.Syndrome) {
	r.owed.nak, r.owed.psn, r.owed.held = code, psn, false
}

// oweACK makes an ACK pending for so many packets that ask for one. If one is pending already, they are merged.
func (r *responder) oweACK(now ib.Instant, asks int) {
	if asks == 0 {
		return
	}
	if r.owed.acks == 0 {
		r.q.timers.set(timerDelayedACK, now+ib.Instant(r.q.cfg.AckDelay))
		r.q.cfg.Stats.AckDeferred += uint64(asks - 1)
	} else {
		r.q.cfg.Stats.AckDeferred += uint64(asks)
	}
	r.owed.acks += int32(asks)
}

package qp

import (
	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/mr"
	"github.com/goroce/goroce/wire"
)

// This file holds what UC and UD do differently from RC: packets are not acknowledged
// and not sent again, so a request is complete when its last packet is sent, and
// incomplete or invalid messages are dropped without a NAK.

// emitUnreliable fills out with request packets. There is no Flow for them, as no ACK
// would ever release their packets.
func (r *requester) emitUnreliable(now ib.Instant, out []TxPacket) int {
	n := 0
	for n < len(out) {
		if at := r.q.pace.ready(); at > now {
			r.q.timers.set(timerPace, at)
			break
		}
		if !r.begin() {
			break
		}
		s, tx := r.slot(r.cur), &out[n]
		ready := s.ready(r.q, r.win.nxt)
		r.lookAhead(r.win.nxt)
		if !ready {
			break
		}
		s.packet(r.q, r.win.nxt, tx)
		r.win.nxt = r.win.nxt.Add(1)
		r.win.una = r.win.nxt
		if r.win.nxt == s.last().Add(1) {
			s.sent = true
			r.cur++
		}
		r.q.pace.sent(now, tx.Len+packetOverhead)
		n++
	}
	return n
}

// failUnreliable fails the request whose packet psn could not be read from
// memory.
func (r *requester) failUnreliable(psn ib.PSN) {
	if r.oldest != r.tail {
		r.failMemory(r.find(psn))
	}
}

// handleUnreliable handles a request packet of an unreliable connection (IBTA
// 9.8.2.2). A gap in the PSNs ends the message that is under way; the next FIRST
// or ONLY is accepted with any PSN.
func (r *responder) handleUnreliable(now ib.Instant, p *wire.Packet) {
	if p.PSN != r.epsn {
		if r.inside != noMessage || !p.Opcode.Starts() {
			r.q.cfg.Stats.OutOfSeqRequest++
			r.q.cfg.Stats.OutOfSequence++
		}
		r.inside = noMessage
	}
	if p.Opcode.Starts() {
		r.inside = noMessage // the message before has no end: its requester had an error, or 2^24 packets were lost
	}
	r.epsn = p.PSN.Add(1)
	r.raiseCommEst()
	switch {
	case !r.commits.room():
		r.noRoom()
	case !r.inOrder(p):
		if p.Opcode.Starts() || r.inside != noMessage { // else p is the rest of a dropped message
			r.q.judge(Dropped)
			r.drop()
		}
	case p.Opcode.IsSend():
		r.send(now, p)
	default:
		r.writeRequest(now, p)
	}
}

// drop drops a message of an unreliable service. If it has taken a receive, the next
// message uses that.
func (r *responder) drop() {
	r.inside = noMessage
	r.q.cfg.Stats.DropMessage++
}

// datagram handles a UD message: one packet, which must carry the QP's Q_Key (IBTA
// 9.8.3.1). The GRH is written to the receive before the payload.
func (r *responder) datagram(now ib.Instant, p *wire.Packet, grh *[ib.GRHLen]byte) {
	if p.DETH.QKey != r.q.attr.QKey {
		r.q.cfg.Stats.DropQKey++
		r.q.judge(WrongQKey)
		return
	}
	if !r.commits.room() {
		r.noRoom()
		return
	}
	if !r.openSend(now, p) {
		return
	}
	n := ib.GRHLen + len(p.Payload)
	if uint64(n) > r.recv.total {
		r.tooLong(now, p)
		return
	}
	c := r.newCommit(p)
	late, err := r.q.late.scatter(r.q, r.recv.sgl, 0, grh[:], lateOwner{slot: r.commits.next()})
	if err == nil {
		var more int
		more, err = r.q.late.scatter(r.q, r.recv.sgl, ib.GRHLen, p.Payload, lateOwner{slot: r.commits.next()})
		late += more
	}
	switch {
	case err == mr.ErrNoRoom:
		r.noRoom() // the receive stays in use
		if late > 0 {
			r.commit(now, c, late) // the placement of the GRH is under way
		}
		return
	case err != nil:
		r.failReceive(now, p, ib.WCLocProtErr, wire.NAKRemoteOp, gone(r.q.cfg.Table, r.recv.sgl))
		return
	}
	r.q.cfg.Stats.RDMARecvs++
	r.receiveDone(&c, p, ib.WCRecv, uint32(n))
	c.wc.Flags |= ib.WCGRH
	c.wc.SrcQP = p.DETH.SrcQP
	c.wc.SL = ib.SLIPv4
	if grh[0]>>4 == 6 { // else the first 20 bytes are 0 (IBTA A17.4.5.1)
		c.wc.SL = ib.SLIPv6
	}
	r.commit(now, c, late)
}

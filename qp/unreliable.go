package qp

import (
	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/mr"
	"github.com/goroce/goroce/wire"
)

// This file is what UC and UD do otherwise than RC: nothing is acknowledged and
// nothing sent again, so a request is complete when its last packet has left,
// and what arrives damaged or unwanted is dropped without a word.

// emitUnreliable fills out with request packets. No Flow holds them back: nothing
// would ever tell that they have arrived.
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
		r.fail(r.find(psn), ib.WCLocProtErr)
	}
}

// handleUnreliable takes a request packet of an unreliable connection (IBTA
// 9.8.2.2). A gap in the PSNs ends the message that is under way; the next FIRST
// or ONLY, whatever its PSN, is in sequence again.
func (r *responder) handleUnreliable(now ib.Instant, p *wire.Packet) {
	if p.PSN != r.epsn {
		if r.inside != noMessage || !p.Opcode.Starts() {
			r.q.cfg.Stats.OutOfSeqRequest++
		}
		r.inside = noMessage
	}
	if p.Opcode.Starts() {
		r.inside = noMessage // a message that lost its end, and a whole round of PSNs
	}
	r.epsn = p.PSN.Add(1)
	r.communicate()
	switch {
	case !r.commits.room():
		r.noRoom()
	case !r.inOrder(p):
		if p.Opcode.Starts() || r.inside != noMessage { // not the rest of one that was dropped
			r.drop()
		}
	case p.Opcode.IsSend():
		r.send(now, p)
	default:
		r.writeRequest(now, p)
	}
}

// drop gives up a message of an unreliable service. A receive that it has taken
// serves the next one.
func (r *responder) drop() {
	r.inside = noMessage
	r.q.cfg.Stats.DropMessage++
}

// datagram takes a UD message: one packet, from whoever knows the Q_Key (IBTA
// 9.8.3.1). The receive gets the GRH first.
func (r *responder) datagram(now ib.Instant, p *wire.Packet, grh *[ib.GRHLen]byte) {
	if p.DETH.QKey != r.q.attr.QKey {
		r.q.cfg.Stats.DropQKey++
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
	late, err := r.q.late.scatter(r.recv.sgl, 0, grh[:], lateOwner{slot: r.commits.next()})
	if err == nil {
		var more int
		more, err = r.q.late.scatter(r.recv.sgl, ib.GRHLen, p.Payload, lateOwner{slot: r.commits.next()})
		late += more
	}
	switch {
	case err == mr.ErrNoRoom:
		r.noRoom() // the receive stays in use
		if late > 0 {
			r.commit(now, c, late) // for the GRH, which is on its way
		}
		return
	case err != nil:
		r.failReceive(now, p, ib.WCLocProtErr, wire.NAKRemoteOp)
		return
	}
	r.q.cfg.Stats.RDMARecvs++
	r.receiveDone(&c, p, ib.WCRecv, uint32(n))
	c.wc.Flags |= ib.WCGRH
	c.wc.SrcQP = p.DETH.SrcQP
	r.commit(now, c, late)
}

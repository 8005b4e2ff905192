package qp

import "github.com/goroce/goroce/ib"

// emit fills out with request packets: first probes, then retransmissions, then new
// packets. It returns how many elements it has used, and how many packets follow them
// in trains.
func (r *requester) emit(now ib.Instant, out []TxPacket) (n, trains int) {
	if len(out) == 0 {
		return 0, 0
	}
	turn := r.q.flow.takeTurn(r.q)
	if r.q.timers.isSet(timerRNR) && !r.holesDue() {
		return 0, 0
	}
	for n+trains < len(out) {
		if at := r.q.pace.ready(); at > now {
			r.q.flow.remove(r.q)
			r.q.timers.set(timerPace, at)
			break
		}
		if r.probe.due == 0 && !r.holesDue() && !r.oldestLost() && r.hasWork() && !r.mayLeave(now, turn, n == 0) {
			break
		}
		before := r.q.flow.bytes
		tx := &out[n]
		if !r.packet(now, tx) {
			r.waitForRoom(n > 0)
			break
		}
		r.q.arrivals.sends(tx)
		n++
		more := r.train(tx, len(out)-n-trains)
		trains += more
		r.q.pace.sent(now, (1+more)*(tx.Len+packetOverhead))
		r.q.flow.pace.sent(now, r.q.flow.bytes-before)
	}
	if n > 0 && !r.q.timers.isSet(timerAck) {
		r.armAck(now)
	}
	if n > 0 && !r.q.timers.isSet(timerProbe) {
		r.armProbe(now)
	}
	return n, trains
}

// mayLeave reports whether the Flow lets a packet leave; else the QP waits there. If only the pace of the Flow holds
// it back it is the first one, with a timer, unless it has just sent something: then others are first.
func (r *requester) mayLeave(now ib.Instant, turn, first bool) bool {
	f := r.q.flow
	if !f.admits(r.q, turn) {
		f.wait(r.q)
		return false
	}
	at := f.pace.ready(now)
	if at <= now {
		return true
	}
	if f.limits(); first {
		f.waitFirst(r.q, 0, 0)
		r.q.timers.set(timerPace, at)
	} else {
		f.wait(r.q)
	}
	return false
}

// waitForRoom queues the QP at the Flow if the next piece of a READ needs more room than there
// is: before all other QPs, or behind them if this call of emit has sent a packet.
func (r *requester) waitForRoom(sent bool) {
	switch {
	case r.readBlocked == 0:
	case sent:
		r.q.flow.wait(r.q)
	default:
		r.q.flow.waitFirst(r.q, int(r.readBlocked), r.slot(r.cur).cost)
	}
	r.readBlocked = 0
}

// packet builds the next packet: a probe, a retransmission or a new packet. If its
// payload must be fetched first, packet returns false and no later packet overtakes it.
func (r *requester) packet(now ib.Instant, tx *TxPacket) bool {
	r.fetchBlocked = false
	switch {
	case r.askForHole(tx):
	case r.q.timers.isSet(timerRNR):
		return false
	case r.probePacket(now, tx):
		return true
	case r.fetchBlocked:
		return false
	case r.resend(tx):
	case r.fetchBlocked || !r.next(tx):
		return false
	}
	r.timeRTT(now, tx)
	return true
}

// ready reports whether the packet of a PSN in flight can be built again.
func (r *requester) ready(psn ib.PSN) bool {
	r.fetchBlocked = !r.slot(r.find(psn)).ready(r.q, psn)
	return !r.fetchBlocked
}

// hasWork reports whether a packet would leave if the Flow had room.
func (r *requester) hasWork() bool {
	return r.win.need.n > 0 || r.cur != r.tail
}

// oldestLost reports whether the oldest packet must be sent again while others behind it are in flight. A READ
// among these is not answered before, so the window may stay full until then.
func (r *requester) oldestLost() bool {
	psn, ok := r.win.firstNeeded()
	return ok && psn == r.win.una && r.win.waiting() > 0 && !r.blocked(psn)
}

// resend builds the oldest packet that must be sent again.
func (r *requester) resend(tx *TxPacket) bool {
	psn, ok := r.win.firstNeeded()
	if !ok || r.blocked(psn) || !r.ready(psn) {
		return false
	}
	s, n := r.repeat(psn, tx)
	r.q.flow.charge(r.win.unmark(psn, n), s.cost)
	r.sentAgain(psn, n)
	if !tx.AckReq {
		r.askForACK(tx, psn.Add(1) == r.win.nxt || psn == s.last() || r.q.flow.full())
	}
	return true
}

// repeat builds the packet of a PSN in flight again. It returns the request that the
// PSN belongs to, and how many PSNs from psn on the packet covers.
//
// A READ is repeated from its first missing response on (IBTA 9.7.5.1.4), whichever
// of its PSNs psn is. A request for a later part would lose what is missing before it:
// rdma_rxe lets a repeated READ replace what it remembers of the original, and drops
// every later request for an earlier part (rxe_resp.c), until our retries run out. An
// atomic is repeated whole; the responder answers it from its resource.
func (r *requester) repeat(psn ib.PSN, tx *TxPacket) (s *sendWQE, n int) {
	s = r.slot(r.find(psn))
	if !sendOps[s.wr.Opcode].answered {
		s.packet(r.q, psn, tx)
		tx.Again = true
		r.q.repeats(psn, 1)
		return s, 1
	}
	rd := r.reads.find(psn)
	from, _ := r.missing(rd)
	r.buildRead(rd, from, rd.end(), tx)
	r.askedAgain(rd, from, rd.end())
	tx.Again = true
	r.q.repeats(from, rd.end().Sub(from))
	return s, rd.end().Sub(psn)
}

package qp

import (
	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/wire"
)

// Bounds of what a delayed ACK may cover: requests with AckReq, and packets. Long
// messages seldom set AckReq, and their sender may have no more than a window of
// packets in flight.
const (
	ackMost    = 16
	ackPackets = 128
)

// emit fills out with the answers that are not delayed: responses of READs and atomics
// in PSN order, then a NAK. It returns how many elements it has used, and how many
// packets follow them in trains.
func (r *responder) emit(now ib.Instant, out []TxPacket) (n, trains int) {
	r.checkGap(now)
	for n+trains < len(out) {
		s := r.res.next()
		if s == nil {
			break
		}
		if s.kind == resRead && s.span[0].Len > 0 && !s.span[0].R.Valid() {
			r.revoked(now, s)
			break
		}
		if !r.ready(s) || !r.mayRespond(now, s) {
			break
		}
		tx := &out[n]
		r.response(s, tx)
		n++
		trains += r.readTrain(s, tx, len(out)-n-trains)
		r.lossy.responded(now, tx)
	}
	switch {
	case n+trains == len(out) || r.owed.nak == 0 || r.res.next() != nil:
	case !r.commits.empty() && r.phase != dying:
		r.owed.held = true
	default:
		r.emitNAK(&out[n])
		n++
	}
	return n, trains
}

// emitNAK builds the pending NAK. If the NAK had to wait for memory, and the packet it
// asks for was accepted meanwhile, it becomes a sequence NAK of the PSN expected now.
func (r *responder) emitNAK(tx *TxPacket) {
	psn, code := r.owed.psn, r.owed.nak
	if r.owed.held && r.phase != dying && psn != r.epsn {
		psn, code = r.epsn, wire.NAKSequence
	}
	r.q.header(tx, wire.OpAck, psn)
	tx.AETH = wire.AETH{Syndrome: code, MSN: r.msn}
	r.owed.nak, r.phase = 0, min(r.phase, refused)
	r.acksSent()
}

// response builds the next packet that answers s.
func (r *responder) response(s *resource, tx *TxPacket) {
	switch s.kind {
	case resRead:
		r.readResponse(s, tx)
		return
	case resAtomic:
		r.q.header(tx, wire.OpAtomicAck, s.first)
	case resEmpty:
		r.q.header(tx, wire.OpReadRespOnly, s.first)
		tx.PadCnt = 0
	}
	tx.AETH, tx.AtomicAck, tx.Again = r.aeth(), s.a, s.again
	s.pending, s.answered = false, true
	r.implied(s.first)
}

var readResponses = segments{wire.OpReadRespFirst, wire.OpReadRespMiddle, wire.OpReadRespLast, wire.OpReadRespOnly}

// readResponse builds the next packet of a READ's response. MIDDLE packets have
// no AETH; the others carry an MSN that counts the READ (IBTA 9.7.5.1.7).
func (r *responder) readResponse(s *resource, tx *TxPacket) {
	isFirst, isLast := s.begins, s.cursor.Add(1) == s.end
	mtu := int(r.q.attr.PathMTU)
	off := s.cursor.Sub(s.first) * mtu
	r.q.header(tx, readResponses.at(isFirst, isLast), s.cursor)
	tx.AETH, tx.Again = r.aeth(), s.again
	tx.Len = min(mtu, int(s.span[0].Len)-off)
	tx.PadCnt = uint8(-tx.Len & 3)
	if s.slow() {
		tx.staged(r.q.fetch.bytes(responses, uint32(s.first), uint32(off)))
	} else {
		tx.SGL, tx.Off = s.span[:], uint64(off)
	}
	s.cursor, s.begins = s.cursor.Add(1), false
	if isLast {
		s.pending, s.answered = false, true
		r.implied(s.end.Add(-1))
		r.nextPart(s)
	}
}

// implied drops the pending ACK if a response with PSN psn acknowledges as much.
func (r *responder) implied(psn ib.PSN) {
	if r.owed.acks > 0 && !r.acked.After(psn) {
		r.acksSent()
	}
}

func (r *responder) acksSent() {
	r.owed.acks, r.owed.again, r.ackSent = 0, false, r.acked
	r.q.timers.clear(timerDelayedACK)
}

// emitACK builds the pending plain ACK if there are packets before it (behindData), if
// its delay is over, or if it is for ackMost requests or ackPackets packets. Without
// the delay each round of a ping-pong would take one more send call.
func (r *responder) emitACK(now ib.Instant, tx *TxPacket, behindData bool) int {
	if r.owed.acks == 0 || r.res.next() != nil {
		return 0
	}
	few := r.owed.acks < ackMost && r.acked.Sub(r.ackSent) < ackPackets
	if !behindData && few && r.q.timers.isSet(timerDelayedACK) && now < r.q.timers[timerDelayedACK] {
		return 0
	}
	r.q.header(tx, wire.OpAck, r.acked)
	tx.AETH, tx.Again = r.aeth(), r.owed.again
	r.acksSent()
	return 1
}

// aeth returns an AETH with the MSN and the credits: the receives that are posted and
// not in use (IBTA 9.7.7.2.1). An SRQ gives no credits, as its receives are for many
// peers.
func (r *responder) aeth() wire.AETH {
	if r.q.usesSRQ() {
		return wire.AETH{Syndrome: wire.AckNoCredits, MSN: r.msn}
	}
	return wire.AETH{Syndrome: wire.AckCredits(r.q.cfg.RQ.Available()), MSN: r.msn}
}

// revoked ends the connection for a READ whose memory cannot be read any more. Requests
// behind the READ are not answered, since that would acknowledge it; its NAK replaces
// one that is pending for a later request.
func (r *responder) revoked(now ib.Instant, s *resource) {
	// The requester ignores a NAK whose PSN it has received already. rdma_rxe names the
	// first PSN of the request, which a requester that has some responses ignores.
	psn := s.cursor
	r.res.cancel()
	denied := refusal(psn, wire.NAKRemoteAccess)
	r.noteAnswer(s)
	r.refuseNow(&denied)
	r.oweNAK(psn, denied.nak)
}

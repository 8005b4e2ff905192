package qp

import (
	"slices"

	"github.com/goroce/goroce/ib"
)

// This file is selective repeat for what a requester can see by itself: the responses to READs and
// atomics. A responder answers in PSN order (IBTA 9.7.5.1.7). So when a response, an ACK or a NAK arrives,
// all before it was answered, and what did not arrive is lost. A strict requester goes back to the
// first missing response and asks for all from there on (implied NAK, IBTA 9.7.5.1.4). This one keeps what
// arrives behind a hole, and asks for the hole alone. Any responder serves that: it is a duplicate of a
// part of the READ (IBTA 9.7.5.1.3).
//
// Of each READ there is one such request at a time, for its oldest hole. rdma_rxe lets a repeated READ
// replace what it remembers of the original: later parts can be asked for after it, but earlier ones are
// dropped (rxe_resp.c duplicate_request). A READ whose hole is not filled in time is asked for again by
// the tail probe or after the ACK timeout, from the hole to its end.

// hole is a part of a READ that was asked for again, or is to be. An atomic is a READ of one PSN.
type hole struct {
	read     ib.PSN // first PSN of the READ
	from, to ib.PSN
	due      bool   // the request is still to be sent
	serial   uint32 // of the request
	nxt      ib.PSN // the PSN that was next to be sent when the request was

	passed ib.PSN // what is missing before it is so at least since then (rack.go)
	since  ib.Instant
}

// asked reports whether the latest request for the hole asks for psn.
func (h *hole) asked(psn ib.PSN) bool { return !psn.Before(h.from) && psn.Before(h.to) }

// lost makes h ask for nothing: the request was lost, or its answer.
func (h *hole) lost() {
	if !h.due && h.from.Before(h.to) {
		h.to, h.passed = h.from, h.read
	}
}

// selective is the state of a requester that misses responses. una stays at the first that is missing;
// window.held has those PSNs behind it that need nothing more.
type selective struct {
	seen   ib.PSN // all before it was answered, if perhaps in vain
	holes  []hole // at most one a READ
	due    int    // how many of them are due
	serial uint32 // of the latest request
}

// lost returns how many packets are lost where h is missing. If nothing of a READ has arrived, it is the request.
func (rd *readReq) lost(h *hole) int {
	if h.from == rd.first && h.to == rd.end() {
		return 1
	}
	return h.to.Sub(h.from)
}

// holesDue reports whether a request for a hole is to be sent.
func (r *requester) holesDue() bool { return r.sel != nil && r.sel.due > 0 }

// beyond handles that the peer has answered everything before psn, while responses are missing.
func (r *requester) beyond(now ib.Instant, psn ib.PSN) {
	if r.sel == nil {
		r.sel = &selective{seen: r.win.una}
	}
	if sel := r.sel; sel.seen.Before(psn) {
		r.holdPushes(now, sel.seen, psn)
		sel.seen = psn
	}
	if n, held := r.win.held.run(r.win.una, r.win.inFlight()); held {
		r.moveTo(now, r.win.una.Add(n))
	}
	for rd := r.reads.oldest(); rd != nil && !r.win.una.Before(rd.end()); rd = r.reads.oldest() {
		r.reads.pop()
	}
	if rd := r.reads.oldest(); rd != nil {
		rd.next = laterPSN(rd.next, r.win.una)
	}
	if !r.win.una.Before(r.sel.seen) {
		r.sel = nil
		return
	}
	r.findHoles(now)
}

// holdPushes marks the SENDs and WRITEs between two PSNs as held.
func (r *requester) holdPushes(now ib.Instant, from, to ib.PSN) {
	for from.Before(to) {
		s := r.slot(r.find(from))
		n := min(s.from(from), to.Sub(from))
		if !sendOps[s.wr.Opcode].answered {
			r.hold(now, s, from, n)
		}
		from = from.Add(n)
	}
}

// hold marks n PSNs of s as held. They are no longer in flight for the Flow.
func (r *requester) hold(now ib.Instant, s *sendWQE, psn ib.PSN, n int) {
	known := r.win.unmark(psn, n)
	sacked := r.win.sacked.remove(psn, n)
	n = r.win.held.add(psn, n)
	r.q.flow.release(n-known-sacked, s.cost)
	r.q.flow.onACK(now, n-sacked)
}

// takenBeyond handles that a response was taken while others are missing.
func (r *requester) takenBeyond(now ib.Instant, rd *readReq, psn ib.PSN) {
	sel := r.sel
	serial := uint32(0) // of the request for a hole that psn answers
	if own := sel.hole(rd.first); own.asked(psn) && !own.due {
		serial = own.serial
		if from, _ := r.missing(rd); from.Before(psn) {
			own.lost()
		}
	}
	// The peer answers in the order of requests: one that was sent before the one that psn answers is lost.
	for i := range sel.holes {
		if h := &sel.holes[i]; h.serial < serial || !psn.Before(h.nxt) {
			h.lost()
		}
	}
	r.hold(now, r.slot(r.find(psn)), psn, 1)
	r.recovery.refill()
	r.armAck(now)
	r.heard(now)
	r.beyond(now, laterPSN(sel.seen, psn.Add(1)))
}

// findHoles makes the oldest hole of each READ due, unless it was asked for, or may be late.
func (r *requester) findHoles(now ib.Instant) {
	sel := r.sel
	sel.holes = slices.DeleteFunc(sel.holes, func(h hole) bool { return r.reads.find(h.read) == nil })
	sel.due = 0
	for i := range r.reads.n {
		rd := r.reads.at(i)
		if !rd.first.Before(sel.seen) {
			break
		}
		h := sel.hole(rd.first)
		from, n := r.missing(rd)
		if n > 0 && from.Before(sel.seen) && !h.asked(from) && !r.holeWaits(now, h, from) {
			h.from, h.to, h.due = from, from.Add(min(n, h.passed.Sub(from))), true
			r.q.cfg.Stats.ImpliedNAK++
			r.q.cfg.Stats.CompleterRetry++
			r.q.flow.onLost(now, rd.lost(h))
			if h.asked(r.probe.timed) {
				r.probe.timing = false
			}
		}
		if h.due {
			sel.due++
		}
	}
}

// missing returns the first PSN of a READ that is not answered, and how many are not from there on.
func (r *requester) missing(rd *readReq) (from ib.PSN, n int) {
	from = laterPSN(rd.first, r.win.una)
	n, held := r.win.held.run(from, rd.end().Sub(from))
	if held {
		from = from.Add(n)
		n, _ = r.win.held.run(from, rd.end().Sub(from))
	}
	return from, n
}

// hole returns the hole of the READ that begins at psn; an empty one if none was asked for.
func (s *selective) hole(psn ib.PSN) *hole {
	for i := range s.holes {
		if s.holes[i].read == psn {
			return &s.holes[i]
		}
	}
	s.holes = append(s.holes, hole{read: psn, from: psn, to: psn, passed: psn})
	return &s.holes[len(s.holes)-1]
}

// askedAgain records that a READ was asked for again, from psn up to end.
func (r *requester) askedAgain(rd *readReq, psn, end ib.PSN) {
	if r.sel == nil {
		return
	}
	sel := r.sel
	h := sel.hole(rd.first)
	if h.due {
		sel.due--
	}
	sel.serial++
	h.from, h.to, h.due, h.serial, h.nxt = psn, end, false, sel.serial, r.win.nxt
}

// askForHole builds the request for a hole that is due.
func (r *requester) askForHole(tx *TxPacket) bool {
	if !r.holesDue() {
		return false
	}
	for _, h := range r.sel.holes {
		if !h.due || r.blocked(h.from) {
			continue
		}
		rd := r.reads.find(h.read)
		r.buildRead(rd, h.from, h.to, tx)
		r.askedAgain(rd, h.from, h.to)
		tx.Again = true
		r.q.repeats(h.from, h.to.Sub(h.from))
		r.q.arrivals.goesBack(h.from, true)
		return true
	}
	return false
}

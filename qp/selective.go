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
// Another device of this project, as SACKs show one, is asked for all holes at once. Of any other there is one
// such request at a time for each READ, for its oldest hole: rdma_rxe lets a repeated READ replace what it
// remembers of the original, so that later parts can be asked for after it, but earlier ones are dropped
// (rxe_resp.c duplicate_request). A READ whose hole is not filled in time is asked for again by the tail probe
// or after the ACK timeout, from the hole to its end.

// hole is a part of a READ that was asked for again, or is to be. An atomic is a READ of one PSN. What of it has
// arrived, or is lost again, is taken off it.
type hole struct {
	read     ib.PSN // first PSN of the READ
	from, to ib.PSN
	due      bool   // the request is still to be sent
	serial   uint32 // of the request
	nxt      ib.PSN // the PSN that was next to be sent when the request was
}

// asked reports whether the latest request for the hole asks for psn.
func (h *hole) asked(psn ib.PSN) bool { return !psn.Before(h.from) && psn.Before(h.to) }

// empty reports whether h asks for nothing.
func (h *hole) empty() bool { return !h.from.Before(h.to) }

// selective is the state of a requester that misses responses. una stays at the first that is missing;
// window.held has those PSNs behind it that need nothing more.
type selective struct {
	seen   ib.PSN     // all before it was answered, if perhaps in vain
	holes  []hole     // do not overlap; at most one a READ, unless the peer takes SACKs
	due    int        // how many of them are due
	serial uint32     // of the latest request
	waits  []readWait // at most one a READ
}

// readWait says for how long responses of a READ are missing (rack.go).
type readWait struct {
	read   ib.PSN // first PSN of the READ
	passed ib.PSN // what is missing before it is so at least since then
	since  ib.Instant
}

// wait returns the readWait of the READ that begins at psn.
func (s *selective) wait(psn ib.PSN) *readWait {
	i := slices.IndexFunc(s.waits, func(w readWait) bool { return w.read == psn })
	if i < 0 {
		i = len(s.waits)
		s.waits = append(s.waits, readWait{read: psn, passed: psn})
	}
	return &s.waits[i]
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
	r.sel.answered(rd, psn, r.q.selects())
	r.hold(now, r.slot(r.find(psn)), psn, 1)
	r.recovery.refill()
	r.armAck(now)
	r.heard(now)
	r.beyond(now, laterPSN(r.sel.seen, psn.Add(1)))
}

// answered takes off the holes what has arrived, and what is lost since it should have arrived before. The peer answers
// in the order of requests, so one that was sent before the one that psn answers is lost. But another device of this
// project answers what is asked of an older READ before what waits there.
func (s *selective) answered(rd *readReq, psn ib.PSN, reorders bool) {
	serial := uint32(0) // of the request for a hole that psn answers
	for i := range s.holes {
		switch h := &s.holes[i]; {
		case !h.asked(psn):
		case h.due && h.from != psn: // what looked lost is late
			h.to = psn
		default:
			serial, h.from = h.serial, psn.Add(1)
		}
	}
	for i := range s.holes {
		h := &s.holes[i]
		if h.due || h.empty() || h.serial >= serial && psn.Before(h.nxt) ||
			psn.Before(h.nxt) && reorders && h.read.After(rd.first) {
			continue
		}
		h.to = h.from
		s.wait(h.read).passed = h.read
	}
}

// findHoles makes holes due that were not asked for, and are not late: all, or the oldest one of each READ.
func (r *requester) findHoles(now ib.Instant) {
	sel := r.sel
	sel.due = 0
	sel.holes = slices.DeleteFunc(sel.holes, func(h hole) bool {
		if h.empty() || r.reads.find(h.read) == nil {
			return true
		}
		if h.due {
			sel.due++
		}
		return false
	})
	sel.waits = slices.DeleteFunc(sel.waits, func(w readWait) bool { return r.reads.find(w.read) == nil })
	for i := range r.reads.n {
		rd := r.reads.at(i)
		if !rd.first.Before(sel.seen) {
			break
		}
		r.findHolesOf(now, rd)
	}
}

// findHolesOf is findHoles of one READ.
func (r *requester) findHolesOf(now ib.Instant, rd *readReq) {
	sel, end := r.sel, earlierPSN(rd.end(), r.sel.seen)
	for from := laterPSN(rd.first, r.win.una); from.Before(end); {
		n, held := r.win.held.run(from, end.Sub(from))
		switch h := sel.next(rd, from); {
		case held:
			from = from.Add(n)
			continue
		case h != nil && h.asked(from):
			n = h.to.Sub(from)
		default:
			if h != nil && r.q.selects() {
				n = min(n, h.from.Sub(from))
			}
			w := sel.wait(rd.first)
			if r.holeWaits(now, w, from) {
				return
			}
			n = min(n, w.passed.Sub(from))
			r.holeDue(now, rd, from, n)
		}
		if from = from.Add(n); !r.q.selects() {
			return
		}
	}
}

// holeDue makes a hole of n packets due.
func (r *requester) holeDue(now ib.Instant, rd *readReq, psn ib.PSN, n int) {
	if !r.q.selects() {
		r.sel.forget(rd)
	}
	h := hole{read: rd.first, from: psn, to: psn.Add(n), due: true}
	r.sel.holes = append(r.sel.holes, h)
	r.sel.due++
	r.q.cfg.Stats.ImpliedNAK++
	r.q.cfg.Stats.CompleterRetry++
	r.q.flow.onLost(now, rd.lost(&h))
	if h.asked(r.probe.timed) {
		r.probe.timing = false
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

// next returns the first hole of a READ that ends behind psn; nil if there is none.
func (s *selective) next(rd *readReq, psn ib.PSN) (next *hole) {
	for i := range s.holes {
		h := &s.holes[i]
		if h.read == rd.first && psn.Before(h.to) && (next == nil || h.from.Before(next.from)) {
			next = h
		}
	}
	return next
}

// forget forgets the holes of a READ.
func (s *selective) forget(rd *readReq) {
	s.holes = slices.DeleteFunc(s.holes, func(h hole) bool {
		if h.read == rd.first && h.due {
			s.due--
		}
		return h.read == rd.first
	})
}

// askedAgain records that a READ was asked for again, from psn up to end.
func (r *requester) askedAgain(rd *readReq, psn, end ib.PSN) {
	if r.sel == nil {
		return
	}
	r.sel.forget(rd)
	r.sel.holes = append(r.sel.holes, hole{read: rd.first, from: psn, to: end})
	r.sel.asks(&r.sel.holes[len(r.sel.holes)-1], r.win.nxt)
}

// asks records that the request for h leaves.
func (s *selective) asks(h *hole, nxt ib.PSN) {
	if h.due {
		s.due--
	}
	s.serial++
	h.due, h.serial, h.nxt = false, s.serial, nxt
}

// askForHole builds the request for a hole that is due.
func (r *requester) askForHole(tx *TxPacket) bool {
	if !r.holesDue() {
		return false
	}
	for i := range r.sel.holes {
		h := &r.sel.holes[i]
		if !h.due || r.blocked(h.from) {
			continue
		}
		rd := r.reads.find(h.read)
		r.buildRead(rd, h.from, h.to, tx)
		r.sel.asks(h, r.win.nxt)
		tx.Again = true
		r.q.repeats(h.from, h.to.Sub(h.from))
		r.q.arrivals.goesBack(h.from, true)
		return true
	}
	return false
}

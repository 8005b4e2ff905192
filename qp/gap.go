package qp

import (
	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/wire"
)

// This file is about gaps: requests of a reliable service that arrive beyond the expected PSN. A responder answers a
// gap with one sequence NAK of the expected PSN, and more packets behind the same gap with silence (IBTA 9.7.5.1.2).
// Where packets overtake each other by a little, as on the links of a bundle, what is missing comes a moment later,
// and the NAK has the peer send everything again in vain. So once that was seen, the NAK waits a moment, at most a
// quarter of a round trip, while what comes behind the gap is kept. The peer cannot tell: when the late packet has
// come, what was kept is executed as if it had come behind it.

// beyond handles p, a request beyond the expected PSN. Kept requests may stand in for those before it (reorder.go).
func (r *responder) beyond(now ib.Instant, p *wire.Packet) {
	r.standIn(now, p.PSN)
	if !p.PSN.After(r.epsn) || r.phase >= refused {
		r.handle(now, p)
		return
	}
	verdict, kept := Behind, r.keep(now, p)
	if kept {
		verdict = Kept
		r.q.cfg.Stats.KeptRequests++
	}
	r.q.cfg.Stats.OutOfSequence++
	if r.q.flow != nil {
		r.q.flow.lossy()
	}
	switch {
	case r.owed.discarding:
		r.oweSACK(now, p.PSN)
		r.q.judge(verdict)
	case kept && r.awaits(now, p.PSN):
		r.q.judge(verdict)
	default:
		r.refuseGap(now, p.PSN)
	}
}

// refuseGap answers a gap in front of psn.
func (r *responder) refuseGap(now ib.Instant, psn ib.PSN) {
	r.q.cfg.Stats.OutOfSeqRequest++
	r.oweSACK(now, psn)
	r.owed.discarding = true
	r.q.judge(Gap)
	r.oweNAK(r.epsn, wire.NAKSequence)
	if r.q.flow != nil {
		r.q.flow.reordering.opened(now, r.q.cfg.Num, r.epsn)
	}
}

// awaits reports whether the answer to the gap in front of psn waits for a late packet.
func (r *responder) awaits(now ib.Instant, psn ib.PSN) bool {
	e := r.early
	if !e.waiting {
		if r.q.flow == nil || r.q.flow.reordering.wait == 0 {
			return false
		}
		e.waiting, e.gap, e.until = true, r.epsn, now+r.q.flow.reordering.wait
		r.q.timers.set(timerSACK, e.until)
	}
	e.trigger = psn
	return now < e.until
}

// checkGap ends the wait for a late packet: it has come, or the time is over. It is called after each input, and before
// the QP sends.
func (r *responder) checkGap(now ib.Instant) {
	e := r.early
	switch {
	case e == nil || !e.waiting || r.phase >= refused:
		return
	case r.owed.discarding: // the late packet has come, and has an RNR NAK or found no room
		e.waiting = false
	case r.epsn != e.gap:
		e.waiting = false
		r.executeKept(now, windowSize)
		if r.early == nil {
			return
		}
		r.forgetEarly()
		if r.early != nil && !r.owed.discarding && !r.awaits(now, e.trigger) { // there is another gap
			r.refuseGap(now, e.trigger)
		}
	case now >= e.until:
		e.waiting = false
		if r.q.flow != nil {
			r.q.flow.reordering.inVain()
		}
		r.refuseGap(now, e.trigger)
	}
}

// reordering is by how much packets from a destination are late where they overtake each other. What was missing and
// came late is sent again after the NAK and arrives a second time: the first time says how late it was, the second one
// how long a round trip takes.
type reordering struct {
	wait ib.Instant // before a NAK; 0: none

	qpn       ib.QPN // the gap that is looked at: of which QP, and its expected PSN
	psn       ib.PSN
	at, ended ib.Instant // when it was found, and when that packet came; 0: not yet
	seen      int        // late packets in a row
	turn      ib.Instant // a round trip, smoothed
}

const (
	// reorderWaitMost is how long a NAK waits at most, whatever a round trip takes, in nanoseconds.
	reorderWaitMost = ib.Instant(10_000_000)
	// reorderedLeast is how many late packets in a row show that packets overtake each other.
	reorderedLeast = 3
)

// opened notes a gap that a NAK is sent for.
func (o *reordering) opened(now ib.Instant, qpn ib.QPN, psn ib.PSN) {
	o.qpn, o.psn, o.at, o.ended = qpn, psn, now, 0
}

// arrived notes that a QP expects psn now.
func (o *reordering) arrived(now ib.Instant, qpn ib.QPN, psn ib.PSN) {
	if o.at > 0 && o.ended == 0 && o.qpn == qpn && o.psn != psn {
		o.ended = now
	}
}

// repeated notes that psn has arrived a second time.
func (o *reordering) repeated(now ib.Instant, qpn ib.QPN, psn ib.PSN) {
	if o.ended == 0 || o.qpn != qpn || o.psn != psn {
		return
	}
	late, turn := o.ended-o.at, now-o.at
	o.at, o.ended = 0, 0
	if o.turn == 0 {
		o.turn = turn
	}
	o.turn += (min(turn, 4*o.turn) - o.turn) / 8
	if late*5 > o.turn {
		o.seen = 0
		return
	}
	if o.seen++; o.seen >= reorderedLeast {
		o.wait = min(max(o.wait, late+late/4), reorderWaitMost)
	}
}

// inVain notes that a NAK has waited for a packet that was lost.
func (o *reordering) inVain() {
	if o.wait -= o.wait / 8; o.wait < 1000 {
		o.wait, o.seen = 0, 0
	}
}

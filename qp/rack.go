package qp

import (
	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/wire"
)

// This file is the reordering window of RACK (RFC 8985, 6.2). Where packets overtake each other, one that is missing
// while others behind it have arrived is taken for lost only if it does not come within that window. Without a sign of
// reordering the window is 0, and what is missing is sent again at once.
//
// The sign is what was sent again in vain (flowstats.go), as D-SACKs are in RACK. Each round trip with such a packet
// makes the window twice as long, from a quarter of the shortest round trip up to two round trips, and losses without
// one make it shorter again. RACK adds a quarter each time, but here a mistake may cost a whole flight: a NAK of a READ
// has a peer without SACKs answer again all that is behind it.

const (
	// reorderSteps is how many steps of the reordering window the shortest round trip has.
	reorderSteps = 4
	// reorderMost is how many round trips the window has at most.
	reorderMost = 2
	// reorderLosses is after how many losses, of which nothing was late, the window is half as long.
	reorderLosses = 16
)

// reorderWindow is the reordering window of a Flow.
type reorderWindow struct {
	steps  uint8
	losses uint8  // since steps changed, or something was late
	round  uint32 // of the rttEstimate, in which it became longer
}

// wait returns how long what is missing may be late, in nanoseconds.
func (w *reorderWindow) wait(rtt *rttEstimate) ib.Instant {
	return ib.Instant(min(int64(w.steps)*rtt.least/reorderSteps, reorderMost*rtt.mean))
}

// late handles that something was sent again in vain.
func (w *reorderWindow) late(rtt *rttEstimate) {
	w.losses = 0
	longest := int64(w.steps)*rtt.least/reorderSteps >= reorderMost*rtt.mean
	if longest || w.steps > 0 && w.round == rtt.round || w.steps > 127 {
		return
	}
	w.steps, w.round = max(2*w.steps, 1), rtt.round
}

// lost handles a loss.
func (w *reorderWindow) lost() {
	if w.losses++; w.losses >= reorderLosses {
		w.steps, w.losses = w.steps/2, 0
	}
}

// suspects are PSNs that are missing while others behind them have arrived. They may be late.
type suspects struct {
	set  psnSet
	list []suspect // in the order in which they were missed
}

// suspect is a range of them.
type suspect struct {
	psn   ib.PSN
	n     int
	since ib.Instant
}

// suspect notes that n PSNs from psn on are missing, but for those that are known to have arrived, or are missed
// already. Of a READ or atomic it is the first one.
func (r *requester) suspect(now ib.Instant, psn ib.PSN, n int) {
	a := r.memory()
	for n > 0 {
		run, known := n, false
		for _, s := range [...]*psnSet{&r.win.held, &r.win.sacked, &r.win.need, &a.sent, &a.late.set} {
			if run, known = s.run(psn, run); known {
				break
			}
		}
		if !known {
			a.late.set.add(psn, run)
			a.late.list = append(a.late.list, suspect{psn, run, now})
		}
		psn, n = psn.Add(run), n-run
	}
}

// suspectPushes notes that SENDs and WRITEs are missing, of n PSNs from psn on.
func (r *requester) suspectPushes(now ib.Instant, psn ib.PSN, n int) {
	for n > 0 {
		s := r.slot(r.find(psn))
		run := min(s.from(psn), n)
		if !sendOps[s.wr.Opcode].answered {
			r.suspect(now, psn, run)
		}
		psn, n = psn.Add(run), n-run
	}
}

// suspectReads notes that READs and atomics are missing: those before end that a SACK of base does not have.
func (r *requester) suspectReads(now ib.Instant, sack *wire.SACK, base, end ib.PSN) {
	for i := range r.reads.n {
		psn := r.reads.at(i).first
		if psn == base || !psn.Before(sack.First) && psn.Before(end) && !sack.Has(psn) {
			r.suspect(now, psn, 1)
		}
	}
}

// loseSuspects takes for lost what did not come within the reordering window.
func (r *requester) loseSuspects(now ib.Instant) {
	a := r.again
	if a == nil || len(a.late.list) == 0 {
		return
	}
	wait, lost, n := r.q.flow.reorderWait(), 0, 0
	for ; n < len(a.late.list) && now-a.late.list[n].since >= wait; n++ {
		s := a.late.list[n]
		a.late.set.remove(s.psn, s.n)
		lost += r.lose(now, s.psn, s.n, lost == 0)
	}
	if a.late.list = append(a.late.list[:0], a.late.list[n:]...); len(a.late.list) > 0 {
		r.reorderUntil(a.late.list[0].since + wait)
	}
	r.losses(now, lost)
}

// reorderUntil sets the timer for the end of a reordering window.
func (r *requester) reorderUntil(at ib.Instant) {
	r.q.timers.set(timerReorder, min(r.q.timers[timerReorder], at))
}

// reorderTimeout handles the end of a reordering window.
func (r *requester) reorderTimeout(now ib.Instant) {
	r.loseSuspects(now)
	if r.sel != nil {
		r.findHoles(now)
	}
}

// holeWaits reports whether the responses from psn on, which are missing, may still be late. Of those behind w.passed
// it is not known for how long they are missing.
func (r *requester) holeWaits(now ib.Instant, w *readWait, psn ib.PSN) bool {
	if !psn.Before(w.passed) {
		w.passed, w.since = r.sel.seen, now
	}
	until := w.since + r.q.flow.reorderWait()
	if now >= until {
		return false
	}
	r.reorderUntil(until)
	return true
}

// nakWaits is what became of the waits for READs that a peer without SACKs has asked for by a sequence NAK. One that
// keeps what comes behind a gap (reorder.go) goes on when the late READ has come. One that drops it asks for what was
// behind the READ: it is waited for only if that takes no longer than a round trip, and answering twice would.
type nakWaits struct {
	behind  ib.PSN // the PSN behind the latest READ that was waited for
	dropped uint8  // waits in a row after which the peer has asked for that, up to dropsLeast
	asked   bool   // it was so after the latest
}

// dropsLeast is how many waits in a row show that a peer drops what comes behind a gap.
const dropsLeast = 3

// worth reports whether a wait makes sense for the READ of a NAK. long says that it takes longer than a round trip.
func (w *nakWaits) worth(psn ib.PSN, long bool) bool {
	asked := psn == w.behind
	switch {
	case asked:
		w.dropped = min(w.dropped+1, dropsLeast)
	case !w.asked:
		w.dropped = 0
	}
	if w.dropped == dropsLeast && (asked || long) {
		w.asked = true
		return false
	}
	w.asked = asked
	return true
}

// mayBeLate reports whether the READ that a sequence NAK asks for may be late: then it is waited for.
func (r *requester) mayBeLate(now ib.Instant, psn ib.PSN) bool {
	wait, rd := r.q.flow.reorderWait(), r.reads.find(psn)
	if wait == 0 || rd == nil {
		return false
	}
	w := &r.memory().naks
	if !w.worth(psn, int64(wait) > r.q.flow.rtt.least) {
		return false
	}
	w.behind = rd.end()
	r.suspect(now, psn, 1)
	r.loseSuspects(now)
	return true
}

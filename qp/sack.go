package qp

import (
	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/wire"
)

// This file is selective retransmission between two devices of this project. A destination that has announced itself
// (Flow.SetSelective) gets SACKs from the responder while packets are missing. The responder executes what it has kept
// as soon as the gap is closed, and the requester sends again what is missing, and nothing else.
//
// A SACK is a hint. It completes no request, and does not free its memory: only ACKs and responses do. One that
// is lost, late or forged makes packets go again that need not, or go later: after an ACK timeout all that SACKs have
// said is forgotten, and go-back-N sends all that is not acknowledged.

const (
	// sackGap is the least time between two SACKs of a QP, in nanoseconds.
	sackGap = ib.Instant(50_000)
	// silentMost is how many sequence NAKs in a row may come without a SACK. With more the destination is taken
	// not to send any.
	silentMost = 32
)

// selects reports whether the peer takes SACKs, and sends them.
func (q *QP) selects() bool { return q.flow != nil && q.flow.selective }

// oweSACK makes a SACK pending, for a request beyond the expected PSN.
func (r *responder) oweSACK(now ib.Instant, trigger ib.PSN) {
	if e := r.early; e != nil && r.q.selects() {
		e.due, e.trigger = true, trigger
		r.q.timers.set(timerSACK, max(now, e.sackAt))
	}
}

// emitSACK builds the pending SACK, if it is time.
func (r *responder) emitSACK(now ib.Instant, tx *TxPacket) int {
	if r.early == nil || !r.early.due || now < r.early.sackAt {
		return 0
	}
	r.forgetEarly()
	e := r.early
	if e == nil {
		return 0
	}
	e.due, e.sackAt = false, now+sackGap
	r.q.timers.clear(timerSACK)
	e.sack = e.describe(r.epsn, r.twice).Append(e.sack[:0])
	*tx = TxPacket{Packet: wire.Packet{BTH: wire.BTH{Opcode: wire.SACKOpcode, PKey: ib.DefaultPKey,
		DestQP: r.q.attr.DestQPN, PSN: r.epsn}}, Inline: e.sack, Len: len(e.sack)}
	r.q.cfg.Stats.SentSACKs++
	return 1
}

// describe returns the SACK of a responder that expects epsn, and got so many requests twice. Its bitmap has the end of
// what is kept: the rest was in those before.
func (q *reorderQueue) describe(epsn ib.PSN, twice uint8) *wire.SACK {
	s := &wire.SACK{Twice: twice, Trigger: q.trigger, First: epsn.Add(1)}
	if runs := q.have.runs; len(runs) > 0 {
		s.First = laterPSN(s.First, runs[len(runs)-1].to.Add(-wire.SACKBits))
	}
	for _, run := range q.have.runs {
		for psn := laterPSN(run.from, s.First); psn.Before(run.to); psn = psn.Add(1) {
			s.Set(psn)
		}
	}
	return s
}

// catchUp executes kept requests that are next, of a peer that takes SACKs.
func (r *responder) catchUp(now ib.Instant) {
	if !r.q.selects() {
		return
	}
	before := r.epsn
	if r.executeKept(now, windowSize); r.epsn != before {
		r.oweACK(now, 1)
	}
}

// resends is what a requester remembers of what it has sent again to a peer that sends SACKs, and of what may be late.
type resends struct {
	sent psnSet   // neither arrived nor lost again, as far as it is known
	list []resend // in the order of sending

	late suspects
	naks nakWaits // of a peer that sends no SACKs
}

// resend is a packet that was sent again.
type resend struct {
	psn, nxt ib.PSN // nxt: the PSN that was next to be sent for the first time
	n        int    // PSNs that it covers
}

// run is psnSet.run of what was sent again.
func (a *resends) run(psn ib.PSN, n int) (length int, in bool) {
	if a == nil {
		return n, false
	}
	return a.sent.run(psn, n)
}

// remove removes n PSNs from psn on.
func (a *resends) remove(psn ib.PSN, n int) {
	if a != nil {
		a.sent.remove(psn, n)
	}
}

// selected handles a SACK.
func (r *requester) selected(now ib.Instant, p *wire.Packet) {
	var sack wire.SACK
	base := p.PSN
	if !r.q.selects() || sack.Decode(p.Payload) != nil {
		r.q.judge(Unexpected)
		return
	}
	r.q.flow.silent = 0 // even if it is late
	if base.Before(r.win.una) || base.After(r.win.nxt) || !sack.First.After(base) || sack.First.After(r.win.nxt) {
		r.q.judge(Unexpected)
		return
	}
	r.q.cfg.Stats.RcvdSACKs++
	if n := int8(sack.Twice - r.twice); n > 0 { // else it was overtaken
		r.q.inVain(int(n))
		r.twice = sack.Twice
	}
	arrived, beyond := 0, base
	for psn, n := sack.Run(sack.First); n > 0 && psn.Before(r.win.nxt); psn, n = sack.Run(psn.Add(n)) {
		n = min(n, r.win.nxt.Sub(psn))
		arrived += r.sacked(now, psn, n)
		beyond = psn.Add(n)
	}
	if r.win.holds(sack.Trigger) {
		beyond = laterPSN(beyond, sack.Trigger.Add(1))
	}
	r.settleResends(sack.Trigger, beyond)
	r.suspectPushes(now, base, beyond.Sub(base))
	r.suspectReads(now, &sack, base, beyond)
	r.loseSuspects(now)
	if arrived > 0 {
		r.recovery.refill()
		r.armAck(now)
		r.heard(now)
	}
}

// sacked marks n PSNs that the peer says it has, and returns how many of them were in flight. Those of READs and
// atomics are in flight until their responses arrive.
func (r *requester) sacked(now ib.Instant, psn ib.PSN, n int) (arrived int) {
	for n > 0 {
		s := r.slot(r.find(psn))
		run, held := r.win.held.run(psn, min(s.from(psn), n))
		if !held && !sendOps[s.wr.Opcode].answered {
			again := r.win.unmark(psn, run)
			fresh := r.win.sacked.add(psn, run)
			r.q.flow.release(fresh-again, s.cost)
			r.q.flow.onACK(now, fresh)
			arrived += fresh
		}
		psn, n = psn.Add(run), n-run
	}
	return arrived
}

// settleResends forgets what was sent again before something that has arrived, as packets arrive in order: it has
// arrived, or is lost again. trigger is a PSN that has arrived, and beyond the end of those that the peer has.
func (r *requester) settleResends(trigger, beyond ib.PSN) {
	a, settled := r.again, 0
	if a == nil {
		return
	}
	for i, s := range a.list {
		if s.nxt.Before(beyond) || s.psn == trigger {
			settled = i + 1
		}
	}
	for _, s := range a.list[:settled] {
		a.sent.remove(s.psn, s.n)
	}
	a.list = append(a.list[:0], a.list[settled:]...)
}

// lose marks those of n PSNs to be sent again that the peer does not have, and that were not sent again in this pass.
// It returns how many packets were in flight. first says that none before them was lost.
func (r *requester) lose(now ib.Instant, psn ib.PSN, n int, first bool) (lost int) {
	if acked := r.win.una.Sub(psn); acked > 0 {
		psn, n = r.win.una, n-acked
	}
	for n > 0 {
		s := r.slot(r.find(psn))
		run, again := r.again.run(psn, min(s.from(psn), n))
		switch {
		case again:
		case sendOps[s.wr.Opcode].answered:
			lost += r.loseRead(now, psn, first && lost == 0)
		default:
			lost += r.loseRun(s, psn, run, first && lost == 0)
		}
		psn, n = psn.Add(run), n-run
	}
	return lost
}

// loseRead is lose for the READ or atomic that begins at psn. If something of it or behind it was answered, what is
// missing is asked for as a hole (selective.go).
func (r *requester) loseRead(now ib.Instant, psn ib.PSN, first bool) int {
	rd := r.reads.find(psn)
	if rd == nil || r.arrived(psn) || r.sel != nil && psn.Before(r.sel.seen) {
		return 0
	}
	if !r.q.selects() {
		r.recovery.lost(now, psn)
		return 0
	}
	return min(r.loseRun(r.slot(rd.slot), psn, rd.end().Sub(psn), first), 1)
}

// loseRun marks n PSNs of s, and returns how many were in flight. first says that none before them was lost.
func (r *requester) loseRun(s *sendWQE, psn ib.PSN, n int, first bool) int {
	lost := r.win.mark(psn, n)
	r.q.flow.release(lost, s.cost)
	if lost > 0 && first {
		r.q.arrivals.goesBack(psn, true)
	}
	return lost
}

// losses counts lost packets.
func (r *requester) losses(now ib.Instant, lost int) {
	if lost > 0 {
		r.q.flow.onLost(now, lost)
		r.q.cfg.Stats.CompleterRetry++
		r.lostTimed()
	}
}

// missesOnly handles a sequence NAK of a peer that sends SACKs: of what follows it may have kept all.
func (r *requester) missesOnly(now ib.Instant, psn ib.PSN) {
	r.q.flow.refused()
	r.suspect(now, psn, 1)
	r.loseSuspects(now)
}

// memory returns r.again, which it makes.
func (r *requester) memory() *resends {
	if r.again == nil {
		r.again = new(resends)
	}
	return r.again
}

// sentAgain records that n PSNs were sent again.
func (r *requester) sentAgain(psn ib.PSN, n int) {
	if !r.q.selects() {
		return
	}
	if a := r.memory(); len(a.list) < windowSize {
		a.sent.add(psn, n)
		a.list = append(a.list, resend{psn: psn, nxt: r.win.nxt, n: n})
	}
}

// forgetSACKs makes go-back-N send again what SACKs have said that the peer has.
func (r *requester) forgetSACKs() {
	w := &r.win
	for _, run := range w.sacked.runs {
		w.need.add(run.from, run.to.Sub(run.from))
	}
	w.sacked.clear()
	r.again = nil
}

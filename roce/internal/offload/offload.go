// Package offload notices a NIC that numbers segments in its own way. A link that leaves
// segmentation to others promises that the frames of a run have IPv4 identifications
// that count up, and their ICRCs are computed so. Linux's software segmentation keeps
// the promise, and so do many NICs; if one does not, strict peers drop all frames
// of a run but the first, or all, and nothing on this host shows it. What peers
// acknowledge does.
//
// Nothing may be lost for it, so some packets always go alone, in runs of one:
// the first of each repetition, NAKs, and ACKs of requests that came again. A
// retry then makes progress whatever the NIC does, so no retry count runs out.
//
// Each QP watches a sample in each direction: a packet that went in a run behind
// another. When two in succession must be repeated, or are sent again by a probe
// (qp/probe.go), their destination is on trial: everything to it goes alone, without
// probes, which would hide what was lost, but whenever a good many packets have arrived so,
// two new ones go together. If these arrive, the losses were ordinary ones and the
// trial is over. If they are lost, time after time, and nothing else ever is, runs
// are the reason, and the owner gives them up for this destination, UC and UD too, for
// a while. Others find out for themselves: this one may lie. A packet lost alone begins
// the count anew, so a bad network ends no
// offload: where it loses a share q of all packets, one count has a chance of
// (1-q)^16 (2q-q^2), at the worst 0.04, and it takes six. A peer that has died
// confirms nothing, so it counts for nothing.
//
// Only the first two frames of runs are looked at: a NIC that numbers these right
// and later ones wrong would be slow and not be found out.
package offload

import (
	"math"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/qp"
	"github.com/goroce/goroce/wire"
)

// Lead is how many packets of a repetition go alone. Requests among them ask for an ACK
// (qp.QP.AskRepeats): if nothing else arrives, that these have must show.
const Lead = 2

const (
	misses    = 2  // samples missed in succession that begin a trial
	cleanPSNs = 16 // PSNs that must arrive, none lost, before two packets go together
	proof     = 6  // pairs lost that prove it

	// After an ACK was missed so many go alone, twice as many each time unless
	// acksTrusted went in runs since: lost ACKs alone do not show whose fault it
	// was, and a probe (qp/probe.go) may have come too soon.
	acksAloneMin = 32
	acksAloneMax = 1 << 16
	acksTrusted  = 64

	// givenUp is after how many times cleanPSNs a pair of unknown fate is given up for
	// another.
	givenUp = 64
)

// Trial is what is known of runs to one destination. The zero value trusts them.
type Trial struct {
	missed int // samples in succession, while it is not on
	on     bool
	clean  int    // PSNs that arrived since the last loss
	lost   int    // pairs lost in succession
	pair   uint32 // names the pair that is under way; 0 if none is
	pairs  uint32
}

// On reports whether runs are on trial.
func (t *Trial) On() bool { return t.on }

// sampleLost reports whether that puts runs on trial.
func (t *Trial) sampleLost() bool {
	t.missed++
	if t.on || t.missed < misses {
		return false
	}
	t.Begin()
	return true
}

// Begin puts runs on trial.
func (t *Trial) Begin() { *t = Trial{on: true, pairs: t.pairs} }

// End takes the suspicion away.
func (t *Trial) End() { *t = Trial{pairs: t.pairs} }

// sampleArrived takes the suspicion away; a trial needs more.
func (t *Trial) sampleArrived() { t.missed = 0 }

// confirmed takes n PSNs that arrived.
func (t *Trial) confirmed(n uint32) {
	if t.on {
		t.clean = int(min(int64(t.clean)+int64(n), math.MaxInt32))
	}
}

// otherLoss takes a loss that runs are not to blame for.
func (t *Trial) otherLoss() { t.clean, t.lost = 0, 0 }

// due reports whether two packets should go together.
func (t *Trial) due() bool {
	return t.on && t.clean >= cleanPSNs && (t.pair == 0 || t.clean >= givenUp*cleanPSNs)
}

// sendPair notes that two packets go together and names them.
func (t *Trial) sendPair() uint32 {
	t.pairs = max(t.pairs+1, 1)
	t.pair = t.pairs
	return t.pair
}

// pairLost reports whether that proves it.
func (t *Trial) pairLost() bool {
	t.clean, t.pair = 0, 0
	t.lost++
	return t.lost >= proof
}

// forget gives up a pair whose fate will not be known.
func (t *Trial) forget(pair uint32) {
	if pair != 0 && t.pair == pair {
		t.pair = 0
	}
}

// sample is a packet that went in a run behind another.
type sample struct {
	set  bool
	psn  ib.PSN
	from ib.PSN // that of the packet before it, if it is of the same QP and direction
	pair uint32 // its name in the trial; 0 if it is none of one
}

// fate is what became of a sample.
type fate uint8

const (
	unknown fate = iota
	arrived
	missed
	void // it was sent again for another reason
)

// observe judges a sample by the progress from then to now. A loss before the run,
// or for want of a receive, has the run sent again whatever became of it.
func (w *sample) observe(then, now *qp.Progress) fate {
	switch {
	case !w.set:
		return unknown
	case now.Repeats == then.Repeats:
		if now.Until.After(w.psn) {
			return arrived
		}
		return unknown
	case now.From.After(w.psn):
		return arrived
	case now.Lost && (now.From == w.from || now.From == w.psn):
		return missed
	}
	return void
}

// QP is what a QP is asked about its packets.
type QP struct {
	requests, answers direction
	acksAlone         int // ACKs that still go alone
	acksAfter         int // how many it was to be when that began
	acksRode          int // that have gone in runs since
}

type direction struct {
	seen   qp.Progress
	lead   int // packets of the latest repetition that still go alone
	sample sample
}

// Forget gives up the samples, when the QP leaves its destination.
func (q *QP) Forget(t *Trial) {
	for _, d := range []*direction{&q.requests, &q.answers} {
		t.forget(d.sample.pair)
		d.sample = sample{}
	}
}

// Verdict is what the progress of a QP has shown of its destination.
type Verdict struct {
	Trials int  // how often runs came under suspicion
	Proven bool // runs are the reason why packets are lost
}

// Observe takes the progress of a QP's requests and answers after an input. The engine lets
// the QPs of the destination probe while runs to it are not on trial.
func (q *QP) Observe(t *Trial, requests, answers *qp.Progress) (v Verdict) {
	q.requests.observe(t, requests, &v)
	q.answers.observe(t, answers, &v)
	return v
}

// observe takes the progress of one direction.
func (d *direction) observe(t *Trial, now *qp.Progress, v *Verdict) {
	if *now == d.seen {
		return
	}
	w := d.sample
	outcome := w.observe(&d.seen, now)
	lost := now.Repeats != d.seen.Repeats && now.Lost
	t.confirmed(now.Confirmed - d.seen.Confirmed)
	d.seen = *now
	if lost {
		d.lead = Lead
	}
	if outcome != unknown {
		d.sample = sample{}
	}
	ofTrial := w.pair != 0 && w.pair == t.pair
	switch {
	case outcome == missed && ofTrial:
		v.Proven = t.pairLost() || v.Proven
	case outcome == missed:
		if t.sampleLost() {
			v.Trials++
		}
	case outcome == arrived && ofTrial:
		t.End()
	case outcome == arrived:
		t.sampleArrived()
	}
	if outcome == void {
		t.forget(w.pair)
	}
	if lost && outcome != missed {
		t.otherLoss()
	}
}

// RunLimit returns how many frames at most the run may have that p goes into, math.MaxInt
// for no limit. suspected says that p has put runs to the destination on trial.
func (q *QP) RunLimit(t *Trial, p *qp.TxPacket) (most int, suspected bool) {
	if p.Opcode.Op() == wire.OpAck {
		if q.ackAlone(p) || t.on {
			return 1, false
		}
		return math.MaxInt, false
	}
	d := q.direction(p)
	if p.Again && d.sample.set && p.PSN == d.sample.psn {
		suspected = d.probed(t)
	}
	switch {
	case p.Again && d.lead > 0:
		d.lead--
		return 1, suspected
	case !t.on:
		return math.MaxInt, suspected
	case !p.Again && t.due():
		return 2, suspected
	}
	return 1, suspected
}

// Unwatched reports whether RunLimit and Watch have nothing to decide about what follows p
// in its train.
func (q *QP) Unwatched(t *Trial, p *qp.TxPacket) bool { return q.direction(p).sample.set && !t.on }

// probed gives up a sample that is sent again before it was missed: whether it had
// arrived will not be known. It reports whether that begins a trial.
func (d *direction) probed(t *Trial) bool {
	t.forget(d.sample.pair)
	d.sample = sample{}
	return t.sampleLost()
}

func (q *QP) direction(p *qp.TxPacket) *direction {
	if p.Opcode.IsRequest() {
		return &q.requests
	}
	return &q.answers
}

// ackAlone decides on an ACK or NAK.
func (q *QP) ackAlone(p *qp.TxPacket) bool {
	if !p.AETH.Syndrome.IsAck() {
		return true
	}
	if p.Again && q.acksAlone == 0 {
		if q.acksRode >= acksTrusted {
			q.acksAfter = 0
		}
		q.acksRode = 0
		q.acksAfter = min(max(2*q.acksAfter, acksAloneMin), acksAloneMax)
		q.acksAlone = q.acksAfter
	}
	if q.acksAlone == 0 {
		q.acksRode++
		return false
	}
	q.acksAlone--
	return true
}

// Packet is one in a run.
type Packet struct {
	QP      *QP
	Request bool
	PSN     ib.PSN
}

// Watch makes p, which went in a run behind another packet, a sample.
func (q *QP) Watch(t *Trial, p *qp.TxPacket, before Packet) {
	if p.Opcode.Op() == wire.OpAck {
		return
	}
	d := q.direction(p)
	w := sample{set: true, psn: p.PSN, from: p.PSN}
	if before.QP == q && before.Request == p.Opcode.IsRequest() {
		w.from = before.PSN
	}
	switch {
	case t.due():
		w.pair = t.sendPair()
	case t.on || d.sample.set:
		return
	}
	d.sample = w
}

// Package offload detects a NIC that sets IPv4 identifications of segments in its own way. A
// link with segmentation offload promises that the frames of a run get consecutive IPv4
// identifications, and their ICRCs are computed for these. Linux's software segmentation
// keeps the promise, and so do many NICs. If a NIC does not, strict peers drop all frames
// of a run but the first, or all of them. Nothing on this host shows that, except the
// peers' acknowledgements.
//
// No request may fail because of such a NIC, so some packets always go alone, in runs of one:
// the first Lead packets of each retransmission after a loss, NAKs, and ACKs of duplicate requests.
// A retry then makes progress whatever the NIC does, so no retry count is exhausted.
//
// Each QP watches a sample in each direction: a packet that went in a run behind another.
// When two samples in succession are retransmitted, or sent again by a probe (qp/probe.go),
// runs to their destination are on trial: all packets to it go alone. Probes are off, as they
// would hide losses. Each time cleanPSNs packets have arrived this way, two new packets go
// together as a pair. If a pair arrives, the losses were ordinary and the trial ends. If
// proof pairs in succession are lost, and nothing else is, runs are the reason: the owner
// gives them up for this destination for some time, for UC and UD too. Other destinations
// have trials of their own, because this peer may lie. The loss of a packet that went alone
// restarts the count, so a bad network does not end offload: if it loses a share q of all
// packets, the probability of one lost pair is (1-q)^16 (2q-q^2), at most 0.04, and six are
// needed. A dead peer confirms no packets, so it causes no pairs.
//
// Only the first two frames of runs are checked: a NIC that numbers these correctly and later
// ones wrongly would make traffic slow and not be detected.
package offload

import (
	"math"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/qp"
	"github.com/goroce/goroce/wire"
)

// Lead is how many packets at the start of a retransmission go alone. Requests among them ask for an ACK
// (qp.Arrivals), so that their arrival shows even if no other packet arrives.
const Lead = 2

const (
	misses    = 2  // samples missed in succession that begin a trial
	cleanPSNs = 16 // PSNs that must arrive without a loss before two packets go together
	proof     = 6  // pairs lost in succession that prove that runs do not arrive

	// After an ACK was lost acksAloneMin ACKs go alone, and each time twice as many, up
	// to acksAloneMax, unless acksTrusted ACKs went in runs since. Lost ACKs do not begin
	// a trial: their cause is unknown, and a probe (qp/probe.go) may have come too soon.
	acksAloneMin = 32
	acksAloneMax = 1 << 16
	acksTrusted  = 64

	// A pair of unknown fate is given up for another one after givenUp times cleanPSNs
	// PSNs have arrived.
	givenUp = 64
)

// Trial is the state of runs to one destination. The zero value trusts them.
type Trial struct {
	missed int // samples missed in succession, while no trial is on
	on     bool
	clean  int    // PSNs that arrived since the last loss
	lost   int    // pairs lost in succession
	pair   uint32 // number of the pair in flight; 0 if there is none
	pairs  uint32 // number of the latest pair
}

// On reports whether runs are on trial.
func (t *Trial) On() bool { return t.on }

// sampleLost counts a missed sample, and reports whether that begins a trial.
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

// End ends the trial.
func (t *Trial) End() { *t = Trial{pairs: t.pairs} }

// sampleArrived resets the count of missed samples. It does not end a trial.
func (t *Trial) sampleArrived() { t.missed = 0 }

// confirmed counts n PSNs that arrived.
func (t *Trial) confirmed(n uint32) {
	if t.on {
		t.clean = int(min(int64(t.clean)+int64(n), math.MaxInt32))
	}
}

// otherLoss restarts the counts of the trial after a loss that runs did not cause.
func (t *Trial) otherLoss() { t.clean, t.lost = 0, 0 }

// due reports whether two packets should go together.
func (t *Trial) due() bool {
	return t.on && t.clean >= cleanPSNs && (t.pair == 0 || t.clean >= givenUp*cleanPSNs)
}

// sendPair notes that two packets go together, and returns the number of the pair.
func (t *Trial) sendPair() uint32 {
	t.pairs = max(t.pairs+1, 1)
	t.pair = t.pairs
	return t.pair
}

// pairLost counts a lost pair, and reports whether that proves that runs do not arrive.
func (t *Trial) pairLost() bool {
	t.clean, t.pair = 0, 0
	t.lost++
	return t.lost >= proof
}

// forget gives up a pair whose fate will remain unknown.
func (t *Trial) forget(pair uint32) {
	if pair != 0 && t.pair == pair {
		t.pair = 0
	}
}

// sample is a packet that went in a run behind another.
type sample struct {
	set  bool
	psn  ib.PSN
	from ib.PSN // PSN of the packet before it if of the same QP and direction, else psn
	pair uint32 // number of its pair in the trial; 0 if it is not part of one
}

// outcome is what has become of a sample.
type outcome uint8

const (
	unknown outcome = iota
	arrived
	missed
	void    // it was retransmitted for another reason
	pending // the packet before it in the run is lost
)

// observe judges a sample by the progress from then to now. After a loss before the run, or
// an RNR NAK, the run is retransmitted whether it arrived or not, so the sample is void.
func (w *sample) observe(then, now *qp.Progress) outcome {
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

// QP is the offload state of a QP.
type QP struct {
	requests, answers direction
	acksAlone         int // ACKs that still have to go alone
	acksAfter         int // how many ACKs had to go alone after the latest lost ACK
	acksRode          int // ACKs that have gone in runs since
}

type direction struct {
	seen   qp.Progress
	lead   int // packets of the latest retransmission that still go alone
	sample sample
}

// Forget gives up the samples, when the QP leaves its destination.
func (q *QP) Forget(t *Trial) {
	for _, d := range []*direction{&q.requests, &q.answers} {
		t.forget(d.sample.pair)
		d.sample = sample{}
	}
}

// judge judges a sample whose own fate is f. If the packet before it is lost and nothing is known of the sample
// yet, the loss may be the run's, too.
func (w *sample) judge(f qp.Fate, fate func(ib.PSN) (qp.Fate, bool)) outcome {
	switch f {
	case qp.FateArrived:
		return arrived
	case qp.FateLost:
		return missed
	}
	if before, _ := fate(w.from); before == qp.FateLost {
		return pending
	}
	return unknown
}

// Verdict is what the progress of a QP shows about runs to its destination.
type Verdict struct {
	Trials int  // number of trials that began
	Proven bool // packets are lost because they go in runs
}

// Observe judges the progress of a QP's requests and answers after an input. The engine lets
// the QPs of a destination send probes only while runs to it are not on trial. fate, if not nil, tells
// more of a request packet (qp.QP.Fate).
func (q *QP) Observe(t *Trial, a *qp.Arrivals, fate func(ib.PSN) (qp.Fate, bool)) (v Verdict) {
	of := q.requests.sample.observe(&q.requests.seen, &a.Requests)
	if w := &q.requests.sample; w.set && fate != nil {
		if f, known := fate(w.psn); known {
			of = w.judge(f, fate)
		}
	}
	q.requests.observe(t, &a.Requests, of, &v)
	q.answers.observe(t, &a.Answers, q.answers.sample.observe(&q.answers.seen, &a.Answers), &v)
	return v
}

// observe judges the progress of one direction, and what has become of its sample.
func (d *direction) observe(t *Trial, now *qp.Progress, of outcome, v *Verdict) {
	if *now == d.seen && of == unknown {
		return
	}
	w := d.sample
	lost := now.Repeats != d.seen.Repeats && now.Lost
	t.confirmed(now.Confirmed - d.seen.Confirmed)
	d.seen = *now
	if lost {
		d.lead = Lead
	}
	if of != unknown && of != pending {
		d.sample = sample{}
	}
	ofTrial := w.pair != 0 && w.pair == t.pair
	switch {
	case of == missed && ofTrial:
		v.Proven = t.pairLost() || v.Proven
	case of == missed:
		if t.sampleLost() {
			v.Trials++
		}
	case of == arrived && ofTrial:
		t.End()
	case of == arrived:
		t.sampleArrived()
	}
	if of == void {
		t.forget(w.pair)
	}
	if lost && of != missed && of != pending {
		t.otherLoss()
	}
}

// RunLimit returns the maximum number of frames of the run that p goes into, math.MaxInt
// for no limit. suspected reports that p has put runs to the destination on trial.
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

// Unwatched reports whether RunLimit and Watch do not need to see the packets that follow p in
// its train.
func (q *QP) Unwatched(t *Trial, p *qp.TxPacket) bool { return q.direction(p).sample.set && !t.on }

// probed counts a sample as lost that a probe sends again: whether it had arrived will remain
// unknown. It reports whether that begins a trial.
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

// ackAlone reports whether an ACK or NAK must go alone.
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

// Packet identifies a packet in a run.
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

package roce

import (
	"math"
	"sync/atomic"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/qp"
	"github.com/goroce/goroce/roce/link"
	"github.com/goroce/goroce/wire"
)

// This file notices a NIC that numbers segments in its own way. A link that leaves
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
// Each QP has a witness in each direction: a packet that went in a run behind
// another. When two in succession must be repeated, or are sent again by a probe
// (qp/probe.go), their destination is on trial: everything to it goes alone, without
// probes, which would hide what was lost, but whenever a good many packets have arrived so,
// two new ones go together. If these arrive, the losses were ordinary ones and the
// trial is over. If they are lost, time after time, and nothing else ever is, runs
// are the reason: offload goes off for the life of the link, for all destinations,
// UC and UD. A packet lost alone begins the count anew, so a bad network ends no
// offload: where it loses a share q of all packets, one count has a chance of
// (1-q)^16 (2q-q^2), at the worst 0.04, and it takes six. A peer that has died
// confirms nothing, so it counts for nothing.
//
// Only the first two frames of runs are looked at: a NIC that numbers these right
// and later ones wrong would be slow and not be found out.

const (
	offloadMisses = 2  // witnesses missed in succession that begin a trial
	offloadLead   = 2  // packets of a repetition that go alone
	offloadClean  = 16 // PSNs that must arrive, none lost, before two packets go together
	offloadCounts = 6  // pairs lost that prove it

	// After an ACK was missed so many go alone, twice as many each time unless
	// acksTrusted went in company since: lost ACKs alone do not show whose fault it
	// was, and a probe (qp/probe.go) may have come too soon.
	acksAloneMin = 32
	acksAloneMax = 1 << 16
	acksTrusted  = 64

	// offloadStuck is after how many times offloadClean a pair that was never
	// heard of is given up for another.
	offloadStuck = 64
)

// Offload says whether frames leave in runs that the kernel or the NIC takes
// apart and numbers.
type Offload uint8

// States of Device.Offload.
const (
	OffloadNone Offload = iota // packets leave as the link makes them
	OffloadOn
	OffloadOff // given up: the NIC numbers segments in a way that peers refuse
)

func (o Offload) String() string {
	switch o {
	case OffloadOn:
		return "on"
	case OffloadOff:
		return "off: the NIC's segments do not arrive"
	}
	return "none"
}

// Offload tells how the device's segmentation offload does. It goes from on to
// off at most once.
func (d *Device) Offload() Offload {
	switch {
	case !d.caps.Segments:
		return OffloadNone
	case d.offloadOff.Load():
		return OffloadOff
	}
	return OffloadOn
}

// offload is what a shard knows of its link.
type offload struct {
	watched bool
	off     *atomic.Bool // the device's
}

func (o *offload) init(d *Device) { o.watched, o.off = d.caps.Segments, &d.offloadOff }

// trial is what is known of runs to one destination. The zero value trusts them.
type trial struct {
	missed int // witnesses in succession, while it is not on
	on     bool
	clean  int    // PSNs that arrived since the last loss
	lost   int    // pairs lost in succession
	pair   uint32 // names the pair that is under way; 0 if none is
	pairs  uint32
}

// witnessMissed reports whether that puts runs on trial.
func (t *trial) witnessMissed() bool {
	t.missed++
	if t.on || t.missed < offloadMisses {
		return false
	}
	*t = trial{on: true, pairs: t.pairs}
	return true
}

// witnessArrived takes the suspicion away; a trial needs more.
func (t *trial) witnessArrived() { t.missed = 0 }

// confirmed takes n PSNs that arrived.
func (t *trial) confirmed(n uint32) {
	if t.on {
		t.clean = int(min(int64(t.clean)+int64(n), math.MaxInt32))
	}
}

// slip takes a loss that runs are not to blame for.
func (t *trial) slip() { t.clean, t.lost = 0, 0 }

// due reports whether two packets should go together.
func (t *trial) due() bool {
	return t.on && t.clean >= offloadClean && (t.pair == 0 || t.clean >= offloadStuck*offloadClean)
}

// sendPair notes that two packets go together and names them.
func (t *trial) sendPair() uint32 {
	t.pairs = max(t.pairs+1, 1)
	t.pair = t.pairs
	return t.pair
}

// pairArrived ends the trial.
func (t *trial) pairArrived() { *t = trial{pairs: t.pairs} }

// pairLost reports whether that proves it.
func (t *trial) pairLost() bool {
	t.clean, t.pair = 0, 0
	t.lost++
	return t.lost >= offloadCounts
}

// forget gives up a pair that nothing will be heard of.
func (t *trial) forget(pair uint32) {
	if pair != 0 && t.pair == pair {
		t.pair = 0
	}
}

// witness is a packet that went in a run behind another.
type witness struct {
	set  bool
	psn  ib.PSN
	from ib.PSN // that of the packet before it, if it is of the same QP and direction
	pair uint32 // its name in the trial; 0 if it is none of one
}

// testimony is what a witness has to say.
type testimony uint8

const (
	unheard testimony = iota
	arrived
	missed
	worthless // it was sent again for another reason
)

// hear judges a witness by the progress from then to now. A loss before the run,
// or for want of a receive, has the run sent again whatever became of it.
func (w *witness) hear(then, now *qp.Progress) testimony {
	switch {
	case !w.set:
		return unheard
	case now.Repeats == then.Repeats:
		if now.Until.After(w.psn) {
			return arrived
		}
		return unheard
	case now.From.After(w.psn):
		return arrived
	case now.Lost && (now.From == w.from || now.From == w.psn):
		return missed
	}
	return worthless
}

// offloadQP is what a QP is asked about its packets.
type offloadQP struct {
	requests, answers direction
	acksAlone         int // ACKs that still go alone
	acksAfter         int // how many it was to be when that began
	acksRode          int // that have gone in company since
}

type direction struct {
	seen    qp.Progress
	lead    int // packets of the latest repetition that still go alone
	witness witness
}

// forget gives up the witnesses, when the QP leaves its destination.
func (o *offloadQP) forget(t *trial) {
	for _, d := range []*direction{&o.requests, &o.answers} {
		t.forget(d.witness.pair)
		d.witness = witness{}
	}
}

// judge looks at what became of q's packets.
func (s *shard) judge(q *QP) {
	if !s.offload.watched || s.offload.off.Load() || q.flow == nil {
		return
	}
	s.hear(q, &q.offload.requests, q.core.Requests())
	s.hear(q, &q.offload.answers, q.core.Answers())
	if q.core.State() == ib.Err {
		q.offload.forget(&q.flow.trial)
	}
}

// hear takes the progress of one direction.
func (s *shard) hear(q *QP, d *direction, now *qp.Progress) {
	if *now == d.seen {
		return
	}
	t, w := &q.flow.trial, d.witness
	heard := w.hear(&d.seen, now)
	lost := now.Repeats != d.seen.Repeats && now.Lost
	t.confirmed(now.Confirmed - d.seen.Confirmed)
	d.seen = *now
	if lost {
		d.lead = offloadLead
	}
	if heard != unheard {
		d.witness = witness{}
	}
	ofTrial := w.pair != 0 && w.pair == t.pair
	switch {
	case heard == missed && ofTrial:
		if t.pairLost() {
			s.offloadOff(q.flow.dst)
		}
	case heard == missed:
		if t.witnessMissed() {
			s.stats.OffloadTrials++
		}
	case heard == arrived && ofTrial:
		t.pairArrived()
	case heard == arrived:
		t.witnessArrived()
	}
	if heard == worthless {
		t.forget(w.pair)
	}
	if lost && heard != missed {
		t.slip()
	}
	q.flow.flow.SetProbes(!t.on)
}

// offloadOff gives runs up.
func (s *shard) offloadOff(peer ib.GID) {
	if s.offload.off.Swap(true) {
		return
	}
	s.stats.OffloadOff++
	if f := s.dev.opts.OnOffloadOff; f != nil {
		f(peer)
	}
}

// company returns how many frames at most the run may have that p goes into. Of a
// packet that must arrive alone it also asks for an ACK.
func (s *shard) company(q *QP, p *qp.TxPacket, path *link.Run) int {
	o := &s.offload
	switch {
	case !o.watched || !path.Src.Is4(): // IPv6 has no identification
		return math.MaxInt
	case o.off.Load():
		return 1
	case q.flow == nil: // UC and UD: nothing is heard of them
		return math.MaxInt
	}
	t := &q.flow.trial
	if p.Opcode.Op() == wire.OpAck {
		if q.offload.ackAlone(p) || t.on {
			return 1
		}
		return math.MaxInt
	}
	d := q.offload.direction(p)
	if p.Again && d.witness.set && p.PSN == d.witness.psn {
		s.probed(q, d)
	}
	switch {
	case p.Again && d.lead > 0:
		d.lead--
		p.AckReq = p.Opcode.IsRequest() // if nothing else arrives, that this did must show
		return 1
	case !t.on:
		return math.MaxInt
	case !p.Again && t.due():
		return 2
	}
	return 1
}

// settled reports whether company and ride have nothing to decide about what follows p
// in its train.
func (o *offload) settled(q *QP, p *qp.TxPacket) bool {
	return !o.watched || !q.path.Src.Is4() || q.offload.direction(p).witness.set && !q.flow.trial.on && !o.off.Load()
}

// probed gives up a witness that is sent again before it was missed: whether it had
// arrived will not be known.
func (s *shard) probed(q *QP, d *direction) {
	t := &q.flow.trial
	t.forget(d.witness.pair)
	d.witness = witness{}
	if t.witnessMissed() {
		s.stats.OffloadTrials++
		q.flow.flow.SetProbes(false)
	}
}

func (o *offloadQP) direction(p *qp.TxPacket) *direction {
	if p.Opcode.IsRequest() {
		return &o.requests
	}
	return &o.answers
}

// ackAlone decides on an ACK or NAK.
func (o *offloadQP) ackAlone(p *qp.TxPacket) bool {
	if !p.AETH.Syndrome.IsAck() {
		return true
	}
	if p.Again && o.acksAlone == 0 {
		if o.acksRode >= acksTrusted {
			o.acksAfter = 0
		}
		o.acksRode = 0
		o.acksAfter = min(max(2*o.acksAfter, acksAloneMin), acksAloneMax)
		o.acksAlone = o.acksAfter
	}
	if o.acksAlone == 0 {
		o.acksRode++
		return false
	}
	o.acksAlone--
	return true
}

// framed is a packet in a run.
type framed struct {
	q       *QP
	request bool
	psn     ib.PSN
}

// ride makes p, which went in a run behind another packet, a witness.
func (o *offload) ride(q *QP, p *qp.TxPacket, before framed) {
	if o.off.Load() || q.flow == nil || p.Opcode.Op() == wire.OpAck || !q.path.Src.Is4() {
		return
	}
	d, t := q.offload.direction(p), &q.flow.trial
	w := witness{set: true, psn: p.PSN, from: p.PSN}
	if before.q == q && before.request == p.Opcode.IsRequest() {
		w.from = before.psn
	}
	switch {
	case t.due():
		w.pair = t.sendPair()
	case t.on || d.witness.set:
		return
	}
	d.witness = w
}

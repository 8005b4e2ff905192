package track

import (
	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/wire"
)

// response handles packet num, a response to requests of flow f.
func (f *Flow) response(num int, at ib.Instant, p *wire.Packet) Effect {
	r := &f.req
	e := Effect{Kind: Ack}
	if !r.plausible(p.PSN) {
		e.Kind = Orphan
		return e
	}
	f.missing(&e, p.PSN)
	switch s := p.AETH.Syndrome; {
	case p.Opcode.Headers()&wire.HasAETH != 0 && !s.IsAck():
		f.nak(&e, num, at, p)
	case p.Opcode.Op() == wire.OpAck:
		if p.PSN.Before(r.unacked) {
			e.Kind = DuplicateAck
			f.Stats.DuplicateAcks++
		}
		if e.Missing > 0 {
			e.Kind = ResponseGap
		}
		f.acknowledge(&e, num, p.PSN)
	default:
		f.answer(&e, num, at, p)
	}
	f.count(&e)
	r.latest.num, r.latest.at, r.latest.psn = num, at, p.PSN
	r.lastAt = at
	return e
}

// count counts packets that seem to have been lost. A probe is sent so early that the answer is rather late.
func (f *Flow) count(e *Effect) {
	if e.Lost > 0 && e.Cause.Why != WhyProbe {
		f.Stats.Lost++
	}
}

// awaits reports whether psn belongs to a request that was seen, so that a response with it may be for this flow.
func (r *requests) awaits(psn ib.PSN) bool {
	if len(r.sent.entries) == 0 {
		return false
	}
	return !psn.Before(r.sent.entries[0].psn) && (psn.Before(r.next) || r.open)
}

// plausible reports whether psn may be that of a response of this connection, even if the capture does not have the
// request.
func (r *requests) plausible(psn ib.PSN) bool {
	d := psn.Sub(r.next)
	return r.started && (d > -farPSN && d < farPSN || r.sent.find(psn) != nil)
}

// acknowledge marks all requests up to psn as acknowledged (an ACK covers all requests before it, IBTA 9.7.5) and
// records them in e.
func (f *Flow) acknowledge(e *Effect, num int, psn ib.PSN) {
	r := &f.req
	if psn.Before(r.unacked) {
		return
	}
	for i := r.sent.index(r.unacked); i < len(r.sent.entries) && !r.sent.entries[i].psn.After(psn); i++ {
		n := &r.sent.entries[i]
		if n.msg.Verb.answered() {
			continue
		}
		if e.AckFirst == 0 {
			e.AckFirst = n.num
		}
		e.AckLast = n.num
		if n.last {
			if e.DoneCount++; e.DoneFirst == nil {
				e.DoneFirst = n.msg
			}
			e.DoneLast = n.msg
			f.Stats.Completed++
		}
	}
	r.unacked, r.ackNum = psn.Add(1), num
}

// nak handles a NAK.
func (f *Flow) nak(e *Effect, num int, at ib.Instant, p *wire.Packet) {
	r := &f.req
	e.syndrome, e.PSN = p.AETH.Syndrome, p.PSN
	n := r.sent.find(p.PSN)
	if n != nil {
		e.Of = n.num
	}
	f.acknowledge(e, num, p.PSN.Add(-1))
	if e.syndrome.IsRNR() || e.syndrome == wire.NAKSequence {
		r.nak.num, r.nak.at, r.nak.rnr = num, at, e.syndrome.IsRNR()
	}
	switch {
	case e.syndrome.IsRNR():
		e.Kind = RNR
		f.Stats.RNRs++
	case e.syndrome == wire.NAKSequence:
		e.Kind, e.Lost = SequenceNAK, e.Of
		f.Stats.SequenceNAKs++
	default:
		e.Kind = FatalNAK
		if n != nil {
			e.Msg = n.msg
		}
		f.Stats.FatalNAKs++
	}
}

// answer handles a response to a READ, an atomic, a FLUSH or an ATOMIC WRITE.
func (f *Flow) answer(e *Effect, num int, at ib.Instant, p *wire.Packet) {
	r := &f.req
	n := r.sent.find(p.PSN)
	if n == nil || !n.msg.Verb.answered() {
		e.Kind = Orphan
		f.acknowledge(e, num, p.PSN)
		return
	}
	m := n.msg
	e.Kind, e.Msg, e.Of, e.Result = Response, m, n.num, p.AtomicAck
	e.From = n.from + uint32(p.PSN.Sub(n.psn)*f.mtu)
	e.To = e.From + uint32(len(p.Payload))
	if e.Missing > 0 {
		e.Kind = ResponseGap
	}
	if old := r.resp.find(p.PSN); old != nil {
		e.Kind, e.Of = DuplicateResponse, old.num
		old.num, old.at = num, at
		f.Stats.DuplicateResponses++
	} else {
		r.resp.put(entry{psn: p.PSN, span: 1, num: num, at: at, msg: m, from: e.From, to: e.To})
		f.Stats.answered(p)
	}
	if next := p.PSN.Add(1); !next.Before(m.respNext) {
		m.respNext = next
	}
	if (p.Opcode.Ends() || p.Opcode.Op() == wire.OpAtomicAck) && !m.done {
		m.done = true
		f.Stats.Completed++
	}
	f.acknowledge(e, num, p.PSN)
}

// missing looks for responses before psn that should have come but were not seen. Each is reported once, until its
// request is retransmitted.
func (f *Flow) missing(e *Effect, psn ib.PSN) {
	r := &f.req
	i := r.sent.index(r.respFrom)
	if i > 0 {
		i-- // a READ with some of its responses
	}
	for ; i < len(r.sent.entries) && r.sent.entries[i].psn.Before(psn); i++ {
		n := &r.sent.entries[i]
		if !n.msg.Verb.answered() || n.msg.done {
			continue
		}
		to := n.end()
		if to.After(psn) {
			to = psn
		}
		from := n.msg.respNext
		if lack := to.Sub(from) - r.resp.count(from, to); lack > 0 {
			if e.Missing == 0 {
				e.MissingFirst = from
			}
			e.Missing += lack
			n.msg.respNext = to
		}
	}
	if psn.After(r.respFrom) {
		r.respFrom = psn
	}
	if e.Missing > 0 {
		f.Stats.ResponseGaps++
		f.Stats.MissingResponses += e.Missing
	}
}

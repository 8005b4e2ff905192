package track

import (
	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/wire"
)

// requests follows the requests of a flow and their responses.
type requests struct {
	started bool
	next    ib.PSN // PSN after the last request
	// open: the last request is a READ, and its number of responses is not known, because the path MTU is not. next
	// assumes one.
	open    bool
	unacked ib.PSN // the first PSN without a response
	counts  [numVerbs]int
	cur     *Message // the message that has not ended yet

	sent     history // requests
	resp     history // responses other than ACKs
	respFrom ib.PSN  // where to look for missing responses

	again     bool   // the last packet was a retransmission
	cursor    ib.PSN // PSN after the last packet
	episode   int    // the packet with which the retransmission began
	episodeAt ib.Instant

	nak struct { // the last NAK, until the requester reacts
		num int
		at  ib.Instant
		rnr bool
	}
	latest struct { // the last response
		num int
		at  ib.Instant
		psn ib.PSN
	}
	ackNum int        // the last packet that acknowledged something
	lastAt ib.Instant // time of the last packet in either direction
}

// Jumps of the PSN.
const (
	// farPSN is too far for a loss: another connection uses the same queue pairs.
	farPSN = 1 << 16
	// farthest is too far even for a gap in the capture in the middle of a message.
	farthest = 1 << 20
)

// request handles request packet num.
func (f *Flow) request(num int, at ib.Instant, p *wire.Packet) Effect {
	r := &f.req
	e := Effect{Flow: f}
	if r.started {
		r.settle(p.PSN, f.mtu)
		if r.elsewhere(p) {
			f.req, e.Restarted = requests{counts: r.counts}, true
		}
	}
	if !r.started {
		r.started, r.next, r.unacked, r.respFrom = true, p.PSN, p.PSN, p.PSN
	}
	d := p.PSN.Sub(r.next)
	switch {
	case d == 0:
		f.fresh(&e, num, at, p)
	case d > 0:
		e.Kind, e.Missing, e.MissingFirst = Gap, d, r.next
		f.Stats.Gaps++
		f.Stats.Missing += d
		f.fresh(&e, num, at, p)
	default:
		f.repeated(&e, num, at, p)
	}
	f.count(&e)
	r.lastAt = at
	return e
}

// elsewhere reports whether a request cannot belong to the same connection as those seen so far.
func (r *requests) elsewhere(p *wire.Packet) bool {
	d := p.PSN.Sub(r.next)
	if d > -farPSN && d < farPSN || r.sent.find(p.PSN) != nil {
		return false
	}
	return d < 0 || d > farthest || p.Opcode.Starts()
}

// settle computes the number of responses of a READ from the PSN of the request after it.
func (r *requests) settle(psn ib.PSN, mtu int) {
	read := r.sent.last()
	if !r.open || read == nil || !psn.After(read.psn) {
		return
	}
	d := psn.Sub(read.psn)
	if mtu == 0 {
		for m := ib.MTU256; m <= ib.MTU4096; m *= 2 {
			if responses(read.msg.Total, int(m)) == d {
				mtu = int(m)
			}
		}
	}
	if mtu == 0 {
		mtu = int(ib.MTU1024) // the usual one on Ethernet; the difference counts as a gap
	}
	read.span = responses(read.msg.Total, mtu)
	r.open, r.next = false, read.end()
}

// responses returns the number of response packets of a READ, at least one (IBTA 9.7).
func responses(n uint32, mtu int) int { return min(max((int(n)+mtu-1)/mtu, 1), maxResponses) }

// fresh handles a request after all that were seen.
func (f *Flow) fresh(e *Effect, num int, at ib.Instant, p *wire.Packet) {
	r := &f.req
	if p.Opcode.Starts() || r.cur == nil || r.cur.Verb != verbOf(p.Opcode) {
		r.cur = r.newMessage(p)
	} else if e.Missing > 0 {
		r.cur.bytes += uint32(e.Missing * f.mtu)
	}
	if e.Kind != Gap {
		e.Kind = New
	}
	f.record(e, num, at, p, r.cur, r.cur.bytes)
	r.cur.bytes = e.To
	last := r.sent.last()
	r.next = last.end()
	r.open = p.Opcode.IsRead() && f.mtu == 0 && p.RETH.Len > uint32(ib.MTU256)
	if p.Opcode.Ends() {
		r.cur = nil
	}
	r.again, r.cursor = false, r.next
}

// record adds a new request, with its offset in the message.
func (f *Flow) record(e *Effect, num int, at ib.Instant, p *wire.Packet, m *Message, offset uint32) {
	r := &f.req
	n := entry{psn: p.PSN, span: 1, num: num, at: at, msg: m, from: offset, to: offset + uint32(len(p.Payload)),
		last: p.Opcode.Ends()}
	if n.last && !m.HasTotal && p.Opcode.HasPayload() {
		m.Total, m.HasTotal = n.to, true
	}
	if p.Opcode.IsRead() {
		n.to = p.RETH.Len
		if f.mtu > 0 {
			n.span = responses(p.RETH.Len, f.mtu)
		}
	}
	r.sent.put(n)
	if first := r.sent.first(); first.After(r.unacked) {
		r.unacked = first
	}
	if first := r.sent.first(); first.After(r.respFrom) {
		r.respFrom = first
	}
	e.Msg, e.From, e.To = m, n.from, n.to
	f.Stats.fresh(p, n.last, m)
}

// repeated handles a request that is not after the last one seen.
func (f *Flow) repeated(e *Effect, num int, at ib.Instant, p *wire.Packet) {
	r := &f.req
	old := r.sent.find(p.PSN)
	if old == nil || f.Service == wire.UC {
		f.late(e, num, at, p, old)
		return
	}
	e.Kind, e.Of = Retransmission, old.num
	e.Msg, e.From, e.To = old.msg, old.from, old.to
	e.Cause = r.whyAgain(num, at, p.PSN, old)
	if e.Cause.Why != WhyGoBack {
		e.Lost = r.lostFor(p.PSN, old)
	}
	if old.msg.Verb.answered() {
		// A READ may be repeated from the middle, for the missing responses.
		e.From += uint32(p.PSN.Sub(old.psn) * f.mtu)
		old.msg.respNext = p.PSN
		if p.PSN.Before(r.respFrom) {
			r.respFrom = p.PSN
		}
	}
	old.num, old.at = num, at
	r.again, r.cursor = true, old.end()
	f.Stats.Again[e.Cause.Why]++
}

// late handles a new request whose PSN is before others that were seen: it was lost before the point of capture, or
// reordered by the network.
func (f *Flow) late(e *Effect, num int, at ib.Instant, p *wire.Packet, old *entry) {
	e.Kind = Late
	f.Stats.Late++
	if old != nil {
		e.Msg, e.From, e.To = old.msg, old.from, old.to
		return
	}
	prev := f.req.sent.before(p.PSN)
	m, offset := (*Message)(nil), uint32(0)
	if prev != nil && !p.Opcode.Starts() && !prev.last && prev.msg.Verb == verbOf(p.Opcode) {
		m, offset = prev.msg, prev.to+uint32((p.PSN.Sub(prev.psn)-1)*f.mtu)
	} else {
		m = f.req.newMessage(p)
	}
	f.record(e, num, at, p, m, offset)
	r := &f.req
	if !r.again || p.PSN != r.cursor {
		r.episode, r.episodeAt = num, at
	}
	r.again, r.cursor, r.nak.num = true, p.PSN.Add(1), 0
}

// learnMTU learns the path MTU from a FIRST or MIDDLE packet, whose payload has that length (IBTA 9.7). It is the same
// in both directions.
func (f *Flow) learnMTU(p *wire.Packet) {
	n := len(p.Payload)
	if f.mtu > 0 || !(p.Opcode.First() || p.Opcode.Middle()) || !ib.MTU(n).Valid() {
		return
	}
	f.setMTU(n)
	if f.Peer != nil {
		f.Peer.setMTU(n)
	}
}

// setMTU sets the path MTU, and the number of responses of the last READ.
func (f *Flow) setMTU(n int) {
	if f.mtu > 0 {
		return
	}
	f.mtu = n
	if r := &f.req; r.open {
		read := r.sent.last()
		read.span = responses(read.msg.Total, n)
		r.open, r.next = false, read.end()
		if !r.again {
			r.cursor = r.next
		}
	}
}

package qp

import (
	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/wire"
)

// Path is what a QP knows of the way to its destination, which all QPs to it share (Flow).
type Path struct {
	Control  Control
	Window   int   // congestion window, in packets
	InFlight int   // packets
	Rate     int64 // at which packets leave at most, in bits of payload a second; 0: no limit, no round trip is known
	RTT      int64 // smoothed round trip in nanoseconds, with the peer's delay of ACKs; 0 before the first sample
	MinRTT   int64 // the shortest; 0 before the first sample
	SACK     bool  // the destination takes SACKs, and sends them

	Marks
}

// Marks counts what a destination, and the way there and back, have told of congestion.
type Marks struct {
	MarkedPkts uint64 // packets of reliable services from there that a switch has marked (CE)
	RcvdCNPs   uint64 // congestion notification packets from there
}

// Path returns the state of the way to the QP's destination; it is zero if there is none.
func (q *QP) Path() Path {
	if q.flow == nil {
		return Path{}
	}
	return q.flow.Path()
}

// Path returns the state of the flow.
func (f *Flow) Path() Path {
	p := Path{Window: f.cwnd, InFlight: f.packets, RTT: f.rtt.mean, MinRTT: f.rtt.least, SACK: f.selective,
		Marks: f.marks}
	if _, ok := f.cc.(*dcqcn); ok {
		p.Control = DCQCN
	}
	if ns := f.pace.nsPerKB; ns > 0 {
		p.Rate = int64(1024 * 8 * 1e9 / ns)
	}
	return p
}

// String returns the name of the congestion control, that of ControlNamed.
func (c Control) String() string {
	if c == DCQCN {
		return "dcqcn"
	}
	return "cubic"
}

// resent is what a QP remembers of what it has sent again, to tell what it need not have sent.
//
// A packet that arrives twice is answered twice: the responder acknowledges a duplicate, and answers a READ again (IBTA
// 9.7.5.1.3). So an answer to what was answered before shows that something was sent again in vain, as a D-SACK of TCP
// does (RFC 2883). It counts once for each PSN that was sent again, within the largest window behind it. An ACK may
// answer several duplicates, and a lost one none, so there were perhaps more; of a peer that sends SACKs these tell how
// many SENDs and WRITEs have arrived twice. A network that itself repeats packets while something is sent again looks
// the same.
type resent struct {
	last ib.PSN // the latest PSN that was sent again
	left uint32 // how many PSNs were sent again there whose second answer has not come
}

// repeats notes that n PSNs from psn on are sent again.
func (q *QP) repeats(psn ib.PSN, n int) {
	r := &q.kept().again
	if !r.near(psn) {
		r.left = 0
	}
	r.last = psn.Add(n - 1)
	r.left = min(r.left+uint32(n), windowSize)
	q.flow.reduced.resent += n
}

// near reports whether psn is within the largest window around the latest PSN that was sent again.
func (r *resent) near(psn ib.PSN) bool {
	d := psn.Sub(r.last)
	return -windowSize < d && d < windowSize
}

// answeredTwice counts a response to what was answered before.
func (q *QP) answeredTwice(p *wire.Packet) {
	q.cfg.Stats.DuplicateResponse++
	q.judge(Duplicate)
	h := q.history
	if h != nil && h.again.near(p.PSN) && (!q.selects() || p.Opcode.IsReadResp()) {
		q.inVain(1)
	}
}

// inVain counts requests that were sent again in vain, of those that were sent again. If there are more, the network
// has repeated them. What a probe or an ACK timeout sends again says nothing about reordering.
func (q *QP) inVain(n int) {
	if q.history == nil {
		return
	}
	again := &q.history.again
	if n > int(again.left) {
		n, q.flow.reduced.repeated = int(again.left), q.now
	}
	again.left -= uint32(n)
	q.history.traffic.SpuriousPkts += uint64(n)
	q.cfg.Stats.SpuriousPkts += uint64(n)
	q.flow.onLate(n)
	if n > 0 && !q.req.probe.explains(q.now, &q.flow.rtt) {
		q.flow.onReordered(q.now, n)
	}
}

package qp

import "github.com/goroce/goroce/ib"

// Limits of a Flow, in packets. A byte limit of flowBytesPerPacket times as much
// holds beside it, so that many small packets and few large ones are both bounded.
const (
	flowStart          = 128
	flowMin            = 4
	flowMax            = 1024
	flowBytesPerPacket = 1024
)

// Flow is the in-flight account of one destination, all QPs together. RDMA WRITE
// has no flow control of its own, and a READ asks for a burst: without a common
// cap many QPs would overrun any socket buffer. The cap grows by one packet for
// each window that is acknowledged and halves on a loss (AIMD). A QP that found
// it full waits in a queue and gets its turn as ACKs come in.
type Flow struct {
	cap        int // packets
	acked      int // packets acknowledged since cap last grew
	packets    int // in flight
	bytes      int
	lossEndsAt ib.Instant // losses before this belong to the halving that was made
	undoCap    int        // cap before the ACK timeouts that may have been early; 0 for none
	rtt        rttEstimate
	noProbes   bool

	first, last *QP // waiting, in order
	need, cost  int // the first waits for room for so many packets of this cost; 0 for any room
	turn        *QP // left the queue by Next, and has not sent yet
}

// NewFlow returns the account of a destination that nothing was sent to yet.
func NewFlow() *Flow { return &Flow{cap: flowStart} }

// Window returns the present cap, in packets.
func (f *Flow) Window() int { return f.cap }

// InFlight returns the packets and bytes that are in flight.
func (f *Flow) InFlight() (packets, bytes int) { return f.packets, f.bytes }

// SetProbes says whether QPs may probe for the tail of a flight, which they may from
// the start if their Config allows it: who judges from losses what becomes of
// packets wants none sent again before they are missed.
func (f *Flow) SetProbes(on bool) { f.noProbes = !on }

// Idle reports whether nothing is in flight.
func (f *Flow) Idle() bool { return f.packets == 0 }

func (f *Flow) full() bool {
	return f.packets >= f.cap || f.bytes >= f.cap*flowBytesPerPacket
}

// room returns how many packets of the given cost may leave now.
func (f *Flow) room(cost int) int {
	return min(f.cap-f.packets, (f.cap*flowBytesPerPacket-f.bytes+cost-1)/cost)
}

func (f *Flow) charge(packets, cost int) {
	f.packets += packets
	f.bytes += packets * cost
}

func (f *Flow) release(packets, cost int) {
	f.packets -= packets
	f.bytes -= packets * cost
}

// onACK is additive increase.
func (f *Flow) onACK(packets int) {
	f.acked += packets
	for ; f.acked >= f.cap && f.cap < flowMax; f.cap++ {
		f.acked -= f.cap
	}
}

// onLoss is multiplicative decrease, once for all losses of one flight, which
// lasts a round trip.
func (f *Flow) onLoss(now ib.Instant) {
	f.undoCap = 0
	f.decrease(now)
}

// onTimeout counts an ACK timeout as a loss, until undo.
func (f *Flow) onTimeout(now ib.Instant) {
	if f.undoCap == 0 {
		f.undoCap = f.cap
	}
	f.decrease(now)
}

// undo takes back what ACK timeouts did to the cap: they ended before the peer could
// answer, and nothing was lost (RFC 4015, 3).
func (f *Flow) undo() {
	f.cap = max(f.cap, f.undoCap)
	f.undoCap = 0
}

func (f *Flow) decrease(now ib.Instant) {
	if now < f.lossEndsAt {
		return
	}
	f.lossEndsAt = now + ib.Instant(f.rtt.flight())
	f.cap = max(f.cap/2, flowMin)
	f.acked = 0
}

// piece is how many responses of the given cost a READ asks for at least, if it has so many:
// a quarter of the packets that may be in flight, and half of what their bytes allow.
func (f *Flow) piece(cost int) int {
	return max(min(f.cap/4, f.cap*flowBytesPerPacket/cost/2), 1)
}

// takeTurn ends the turn that q got by Next, and reports whether it had one.
func (f *Flow) takeTurn(q *QP) bool {
	if f.turn != q {
		return false
	}
	f.turn = nil
	return true
}

// admits reports whether q may send now: there is room, and it is q's turn or nobody
// waits. Else a QP whose ACKs come in would take the room that they make, again and
// again, and those that wait for it would starve.
func (f *Flow) admits(q *QP, turn bool) bool {
	switch {
	case f.full():
		return false
	case turn:
		return true
	case f.turn != nil || f.first != nil && f.first != q:
		return false
	}
	f.remove(q)
	return true
}

// wait queues q until there is room.
func (f *Flow) wait(q *QP) {
	if q.waiting {
		return
	}
	q.waiting = true
	if f.last == nil {
		f.first = q
	} else {
		f.last.nextWaiting = q
	}
	f.last = q
}

// waitFirst queues q before all others until there is room for n packets of the given cost.
// It had its turn, and the room was too small: others must not take that as well.
func (f *Flow) waitFirst(q *QP, n, cost int) {
	q.waiting = true
	if q.nextWaiting = f.first; f.first == nil {
		f.last = q
	}
	f.first, f.need, f.cost = q, n, cost
}

// Next returns the QP that has waited the longest, if there is room; it is out of the
// queue then and must be given to NextPackets, before which there is no other. Next
// returns nil otherwise.
func (f *Flow) Next() *QP {
	if f.turn != nil || f.first == nil || f.full() || f.need > 0 && f.room(f.cost) < f.need {
		return nil
	}
	q := f.first
	f.remove(q)
	f.turn = q
	return q
}

// remove takes q out of the queue, wherever it stands, and takes its turn away.
func (f *Flow) remove(q *QP) {
	f.takeTurn(q)
	if !q.waiting {
		return
	}
	var prev *QP
	for p := f.first; p != q; p = p.nextWaiting {
		prev = p
	}
	if prev == nil {
		f.first, f.need = q.nextWaiting, 0
	} else {
		prev.nextWaiting = q.nextWaiting
	}
	if f.last == q {
		f.last = prev
	}
	q.nextWaiting, q.waiting = nil, false
}

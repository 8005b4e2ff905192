package qp

import "github.com/goroce/goroce/ib"

// Limits of a Flow, in packets. There is also a byte limit of flowBytesPerPacket for
// each, so that many small packets and few large ones are both bounded.
const (
	flowStart          = 128
	flowMin            = 4
	flowMax            = 1024
	flowBytesPerPacket = 1024
)

// Flow counts what is in flight to one destination, all QPs together, and holds the
// congestion window (cap). RDMA WRITE has no flow control of its own, and a READ asks
// for a burst: without a common cap many QPs would overrun any socket buffer. The cap
// grows by one packet for each window that is acknowledged and halves on a loss (AIMD).
// A QP that finds it full waits in a queue, from which Next returns it as ACKs arrive.
type Flow struct {
	cap        int // packets
	acked      int // packets acknowledged since cap last grew
	packets    int // in flight
	bytes      int
	lossEndsAt ib.Instant // losses before this time do not halve cap again
	undoCap    int        // cap before ACK timeouts that may have been too early; 0 for none
	rtt        rttEstimate
	noProbes   bool

	first, last *QP // waiting, in order
	need, cost  int // first waits for room for need packets of this cost; need is 0 for any room
	turn        *QP // the QP that Next has returned and that has not sent yet
}

// NewFlow returns the Flow of a destination to which nothing was sent yet.
func NewFlow() *Flow { return &Flow{cap: flowStart} }

// CongestionWindow returns the congestion window, in packets.
func (f *Flow) CongestionWindow() int { return f.cap }

// InFlight returns the packets and bytes that are in flight.
func (f *Flow) InFlight() (packets, bytes int) { return f.packets, f.bytes }

// SetProbes sets whether QPs whose Config allows it may send tail probes; initially they
// may. An owner that infers from retransmissions whether packets arrive turns them off,
// since a probe sends packets again that are perhaps not lost.
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

// onACK does the additive increase.
func (f *Flow) onACK(packets int) {
	f.acked += packets
	for ; f.acked >= f.cap && f.cap < flowMax; f.cap++ {
		f.acked -= f.cap
	}
}

// onLoss does the multiplicative decrease, once for all losses within one round trip.
func (f *Flow) onLoss(now ib.Instant) {
	f.undoCap = 0
	f.decrease(now)
}

// onTimeout handles an ACK timeout like a loss, but undo can restore the cap.
func (f *Flow) onTimeout(now ib.Instant) {
	if f.undoCap == 0 {
		f.undoCap = f.cap
	}
	f.decrease(now)
}

// undo restores the cap from before ACK timeouts that ended before the peer could have
// answered, when nothing was lost (RFC 4015, 3).
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

// piece returns how many responses of the given cost a READ asks for at least, unless fewer
// are left: a quarter of the packets that may be in flight, at most half of the byte limit.
func (f *Flow) piece(cost int) int {
	return max(min(f.cap/4, f.cap*flowBytesPerPacket/cost/2), 1)
}

// takeTurn reports whether q is the QP that Next returned last, and ends that turn.
func (f *Flow) takeTurn(q *QP) bool {
	if f.turn != q {
		return false
	}
	f.turn = nil
	return true
}

// admits reports whether q may send now: there is room, and it is q's turn or no other QP
// waits. Otherwise a QP whose ACKs come in would always take the room that they make, and
// the waiting QPs would starve.
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
// Other QPs do not get the room meanwhile, so it grows until it is large enough for q.
func (f *Flow) waitFirst(q *QP, n, cost int) {
	q.waiting = true
	if q.nextWaiting = f.first; f.first == nil {
		f.last = q
	}
	f.first, f.need, f.cost = q, n, cost
}

// Next removes the QP that has waited the longest from the queue and returns it, or nil
// if there is no room. The caller must call its NextPackets; until then Next returns nil.
//
// When nothing is in flight there is all the room that will ever be: the cap may be smaller
// than when the QP began to wait for more.
func (f *Flow) Next() *QP {
	if f.turn != nil || f.first == nil || f.full() {
		return nil
	}
	if f.need > 0 && f.packets > 0 && f.room(f.cost) < f.need {
		return nil
	}
	q := f.first
	f.remove(q)
	f.turn = q
	return q
}

// remove removes q from the queue, from any position, and ends its turn.
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

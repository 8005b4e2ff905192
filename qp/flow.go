package qp

import "github.com/goroce/goroce/ib"

// flowBytesPerPacket is the byte limit of a Flow for each packet of its congestion window,
// so that many small packets and few large ones are both bounded.
const flowBytesPerPacket = 1024

const (
	// piecesMost is into how many pieces READs divide the window where a queue is short, of pieceLeast packets at
	// least. Most devices let 16 READs begin, and shorter pieces lose more requests, which have to be made again.
	piecesMost = 12
	pieceLeast = 4
	// shortFor is for how long a loss shows such a queue, in nanoseconds.
	shortFor = ib.Instant(5_000_000_000)
)

// Flow counts what is in flight to one destination, all QPs together, up to the congestion
// window (congestion.go), and spaces what leaves (pacer.go). RDMA WRITE has no flow control of
// its own, and a READ asks for a burst: without a common window many QPs would overrun any
// socket buffer. A QP that finds it full
// waits in a queue, from which Next returns it as ACKs arrive.
type Flow struct {
	cc        congestionControl
	gate      lossGate
	cwnd      int        // congestion window, in packets
	undoCwnd  float64    // that before ACK timeouts that may have been too early; 0: none
	heard     ib.Instant // when the latest ACK came
	limited   uint32     // the round of rtt in which the window was full
	unsettled int        // packets that were in flight at the latest reduction, and are neither acknowledged nor lost
	rate      ackRate
	pace      bucket

	losses     lossCount
	reduced    reduction     // to be undone if nothing was lost
	rack       reorderWindow // of what the destination has, or answers
	shortUntil ib.Instant    // until then READs ask for little at a time: bursts overflow a queue

	packets  int // in flight
	bytes    int
	rtt      rttEstimate
	noProbes bool

	marks     Marks
	selective bool     // the destination takes SACKs and sends them
	news      PeerNews // for the owner
	silent    int      // sequence NAKs since the latest SACK

	reordering reordering // of requests that come from there

	first, last *QP // waiting, in order
	need, cost  int // first waits for room for need packets of this cost; need is 0 for any room
	turn        *QP // the QP that Next has returned and that has not sent yet
}

// NewFlow returns the Flow of a destination to which nothing was sent yet.
func NewFlow(cfg FlowConfig) *Flow {
	f := &Flow{cc: newCubic(cfg.Window)}
	if cfg.Control == DCQCN {
		f.cc = newDCQCN()
	}
	f.adjust()
	return f
}

// CongestionWindow returns the congestion window, in packets.
func (f *Flow) CongestionWindow() int { return f.cwnd }

// InFlight returns the packets and bytes that are in flight.
func (f *Flow) InFlight() (packets, bytes int) { return f.packets, f.bytes }

// SetProbes sets whether QPs whose Config allows it may send tail probes; initially they
// may. An owner that infers from retransmissions whether packets arrive turns them off,
// since a probe sends packets again that are perhaps not lost.
func (f *Flow) SetProbes(on bool) { f.noProbes = !on }

// SetSelective sets whether the destination takes SACKs and sends them (sack.go). Initially it is taken not to.
func (f *Flow) SetSelective(on bool) { f.selective = on }

// PeerNews is what the QPs of a Flow have found out about its destination.
type PeerNews uint8

// News of a destination.
const (
	NoNews     PeerNews = iota
	PeerWanted          // packets are lost: whether it takes SACKs matters
	PeerSilent          // it does not send SACKs as it should; SetSelective is off
)

// TakeNews returns what is new, once.
func (f *Flow) TakeNews() PeerNews {
	n := f.news
	f.news = NoNews
	return n
}

// lossy notes that packets to or from the destination are lost.
func (f *Flow) lossy() {
	if !f.selective && f.news == NoNews {
		f.news = PeerWanted
	}
}

// refused notes a sequence NAK of a destination that takes SACKs: a SACK must follow it.
func (f *Flow) refused() {
	if f.silent++; f.silent > silentMost {
		f.selective, f.silent, f.news = false, 0, PeerSilent
	}
}

// Idle reports whether nothing is in flight.
func (f *Flow) Idle() bool { return f.packets == 0 }

func (f *Flow) full() bool {
	return f.packets >= f.cwnd || f.bytes >= f.cwnd*flowBytesPerPacket
}

// room returns how many packets of the given cost may leave now.
func (f *Flow) room(cost int) int {
	return min(f.cwnd-f.packets, (f.cwnd*flowBytesPerPacket-f.bytes+cost-1)/cost)
}

func (f *Flow) charge(packets, cost int) {
	f.packets += packets
	f.bytes += packets * cost
}

func (f *Flow) release(packets, cost int) {
	f.packets -= packets
	f.bytes -= packets * cost
}

// piece returns for how many responses of the given cost a READ asks at least and at most, if so many are left of it.
// left is how many READs may still begin, this one included.
//
// The responses may come in one burst at the rate of the peer's link. Where losses have shown a queue on the way, which
// that overflows, a READ asks for as little as fills the window together with the others that may begin. Elsewhere it
// asks for all that there is room for, and at least for a quarter of the window, or a quantum of the pace if that is
// more. But where packets are lost, READs wait for those before them: half of the READs that may still begin have to
// fill the window.
func (f *Flow) piece(now ib.Instant, cost, left int) (least, most int) {
	window := min(f.cwnd, f.cwnd*flowBytesPerPacket/cost)
	if now < f.shortUntil && !f.gate.late.common() {
		fills := max(window/piecesMost, (f.room(cost)+left-1)/left)
		least = max(fills, min(pieceLeast, window/4), 1)
		return least, least
	}
	least = max(window/min(max(left/2, 2), 4), min(window/4, quantumMost*1024/cost), 1)
	return least, max(f.room(cost), least)
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
		f.limits()
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
	f.remove(q)
	q.waiting = true
	if q.nextWaiting = f.first; f.first == nil {
		f.last = q
	}
	f.first, f.need, f.cost = q, n, cost
}

// Next removes the QP that has waited the longest from the queue and returns it, or nil
// if there is no room. The caller must call its NextPackets; until then Next returns nil.
//
// If the pace holds all of them back, the first one has a timer set.
//
// When nothing is in flight there is all the room that will ever be: the window may be smaller
// than when the QP began to wait for more.
func (f *Flow) Next() *QP {
	if f.turn != nil || f.first == nil || f.full() || f.first.timers.isSet(timerPace) {
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

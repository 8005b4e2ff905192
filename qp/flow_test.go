package qp

import (
	"testing"

	"github.com/goroce/goroce/ib"
)

// newWaiter returns a QP that can do nothing but wait at a Flow.
func newWaiter() *QP {
	q := new(QP)
	q.timers.clearAll()
	return q
}

// TestFlowBounds checks the limits of packets and of bytes.
func TestFlowBounds(t *testing.T) {
	for _, c := range []struct{ cost, most int }{
		{packetOverhead, 128},        // small packets: the packet limit
		{1024 + packetOverhead, 121}, // the limit of 128 KiB, which the last one may exceed
		{4096 + packetOverhead, 32},
		{128 * 1024, 1},   // exactly full
		{128*1024 - 1, 2}, // a byte is left
		{1024, 128},       // both limits at once
	} {
		f := NewFlow(FlowConfig{Window: 128})
		n := 0
		for !f.full() {
			if f.room(c.cost) < 1 {
				t.Errorf("cost %d: no room for packet %d, but not full", c.cost, n)
				break
			}
			f.charge(1, c.cost)
			n++
		}
		if n != c.most || f.room(c.cost) > 0 {
			t.Errorf("cost %d: %d packets, want %d; room for %d more", c.cost, n, c.most, f.room(c.cost))
		}
		f.release(n, c.cost)
		if packets, bytes := f.InFlight(); packets != 0 || bytes != 0 {
			t.Errorf("cost %d: got %d packets, %d bytes in flight at the end, want none", c.cost, packets, bytes)
		}
	}
}

// TestFlowQueue checks that Next returns QPs in the order of wait, one at a time, and that
// removing one leaves the others in the queue.
func TestFlowQueue(t *testing.T) {
	f := NewFlow(FlowConfig{Window: 128})
	f.charge(128, 1)
	qps := []*QP{newWaiter(), newWaiter(), newWaiter(), newWaiter()}
	for _, q := range qps {
		f.wait(q)
		f.wait(q) // has no effect
	}
	if f.Next() != nil {
		t.Fatal("a full account hands out a turn")
	}
	f.release(1, 1)
	f.remove(qps[2]) // in the middle
	f.remove(qps[2])
	for _, want := range []*QP{qps[0], qps[1], qps[3], nil} {
		if got := f.Next(); got != want {
			t.Fatalf("next is %p, want %p", got, want)
		}
		if want != nil && (f.Next() != nil || f.admits(qps[2], false)) {
			t.Error("two have a turn at once")
		}
		if want != nil && !f.takeTurn(want) {
			t.Error("it is not its turn")
		}
	}
	f.wait(qps[0])
	f.wait(qps[1])
	f.remove(qps[1]) // the last
	f.wait(qps[2])
	if f.Next() != qps[0] || f.admits(qps[1], false) {
		t.Fatal("the queue is broken after its last one left")
	}
	f.remove(qps[0]) // with its turn
	if f.admits(qps[1], false) || f.Next() != qps[2] || !f.takeTurn(qps[2]) || !f.admits(qps[1], false) {
		t.Fatal("the queue is broken after one left that had its turn")
	}
}

// TestFlowShared checks that two QPs to one destination share its Flow, and neither
// starves.
func TestFlowShared(t *testing.T) {
	a, b := newHost(t, ourNum), newHost(t, ourNum)
	b.flow = a.flow
	for _, h := range []*host{a, b} {
		h.up(ib.StateRTS, goodAttr(peerNum, ourPSN, peerPSN))
		h.post(&ib.SendWR{ID: 1, Opcode: ib.WRSend, SGL: []ib.SGE{h.sge(0, 200*1024)}})
	}
	sent := map[*host]int{a: len(a.emit(0, 8)), b: len(b.emit(0, 8))}
	if sent[a] != 121 || sent[b] != 0 {
		t.Fatalf("%d and %d packets, want all that fits, and none", sent[a], sent[b])
	}
	acked := map[*host]int{}
	for range 1000 {
		for _, h := range []*host{a, b} { // the peer acknowledges everything at once
			if acked[h] < sent[h] {
				acked[h] = sent[h]
				h.handle(0, ack(ourPSN.Add(sent[h]-1), 0))
			}
		}
		q := a.flow.Next()
		if q == nil {
			break
		}
		h := a
		if q == b.q {
			h = b
		}
		sent[h] += len(h.emit(0, 8))
	}
	if sent[a] != 200 || sent[b] != 200 {
		t.Errorf("%d and %d packets, want 200 each", sent[a], sent[b])
	}
	if packets, bytes := a.flow.InFlight(); packets != 0 || bytes != 0 {
		t.Errorf("got %d packets, %d bytes in flight at the end, want none", packets, bytes)
	}
}

// TestTimeoutWhileHeld checks that a timeout uses no retry while the Flow holds back all
// packets that were lost.
func TestTimeoutWhileHeld(t *testing.T) {
	h := newHost(t, ourNum)
	attr := goodAttr(peerNum, ourPSN, peerPSN)
	attr.RetryCnt = 1
	h.up(ib.StateRTS, attr)
	h.post(&ib.SendWR{ID: 1, Opcode: ib.WRSend, Flags: ib.SendSignaled, SGL: []ib.SGE{h.sge(0, 8)}})
	h.emit(0, 8)
	h.q.HandleTimeout(h.q.Deadline())
	h.flow.charge(128, 1) // other QPs use the whole window
	for range 10 {
		h.q.HandleTimeout(h.q.Deadline())
		if n := len(h.emit(0, 8)); n != 0 || h.q.State() != ib.StateRTS {
			t.Fatalf("got %d packets in %v, want none in RTS", n, h.q.State())
		}
	}
	h.flow.release(128, 1)
	if h.flow.Next() != h.q || len(h.emit(0, 8)) != 1 {
		t.Error("the QP did not get its turn")
	}
	if h.stats.LocalAckTimeout != 1 {
		t.Errorf("%d timeouts counted, want the first", h.stats.LocalAckTimeout)
	}
}

// TestFlowChange checks that an SQD-to-SQD change of path moves what is in flight from one
// Flow to the other.
func TestFlowChange(t *testing.T) {
	h := newHost(t, ourNum)
	h.up(ib.StateRTS, goodAttr(peerNum, ourPSN, peerPSN))
	h.post(&ib.SendWR{ID: 1, Opcode: ib.WRSend, SGL: []ib.SGE{h.sge(0, 4096)}})
	h.emit(0, 8)
	other := NewFlow(FlowConfig{Window: 128})
	h.q.SetFlow(other)
	if packets, bytes := h.flow.InFlight(); packets != 0 || bytes != 0 {
		t.Errorf("the old account: got %d packets, %d bytes, want none", packets, bytes)
	}
	if n := len(h.emit(0, 8)); n != 4 {
		t.Errorf("%d packets sent on the new path, want all 4 again", n)
	}
	if packets, _ := other.InFlight(); packets != 4 {
		t.Errorf("the new account: got %d packets, want 4", packets)
	}
	h.handle(0, ack(ourPSN.Add(3), 1))
	if packets, bytes := other.InFlight(); packets != 0 || bytes != 0 {
		t.Errorf("the new account after the ACK: got %d packets, %d bytes, want none", packets, bytes)
	}
}

// TestFlowWaitFirst: a QP that waits for more room than the cap allows after losses gets its turn when nothing
// is in flight any more; otherwise all QPs to the destination would wait for ever.
func TestFlowWaitFirst(t *testing.T) {
	const cost = 1024
	f, q := NewFlow(FlowConfig{Window: 128}), newWaiter()
	f.charge(f.CongestionWindow()-1, cost)
	need, _ := f.piece(0, cost, 4)
	f.waitFirst(q, need, cost)
	for i := range 10 {
		f.onLoss(ib.Instant(i+1) * 1_000_000_000)
	}
	if f.CongestionWindow() >= need {
		t.Fatalf("a cap of %d packets after losses, want less than the %d the QP waits for", f.CongestionWindow(), need)
	}
	for n := 128 - 1; n > 0; n-- {
		if got := f.Next(); got != nil {
			t.Fatalf("a turn with %d packets in flight, a cap of %d and %d needed", n, f.CongestionWindow(), need)
		}
		f.release(1, cost)
	}
	if f.Next() != q {
		t.Errorf("no turn with nothing in flight, a cap of %d and %d needed", f.CongestionWindow(), need)
	}
}

// TestPiece: a READ asks for a quarter of the window at least, and for more if few can follow it. Where a queue is
// short it asks for what fills the window with all that may begin, and not for more.
func TestPiece(t *testing.T) {
	for _, c := range []struct {
		name        string
		short, late bool
		inFlight    int
		cost, left  int
		least, most int
	}{
		{name: "any path", cost: 1024, left: 16, least: 32, most: 128},
		{name: "half may begin", cost: 1024, left: 8, least: 32, most: 128},
		{name: "few may begin", cost: 1024, left: 6, least: 42, most: 128},
		{name: "two before the last", cost: 1024, left: 4, least: 64, most: 128},
		{name: "the last", cost: 1024, left: 1, least: 64, most: 128},
		{name: "large packets", cost: 4096, left: 16, least: 8, most: 32},
		{name: "large packets, the last", cost: 4096, left: 1, least: 16, most: 32},
		{name: "a short queue", short: true, cost: 1024, left: 16, least: 10, most: 10},
		{name: "a short queue, few may begin", short: true, inFlight: 64, cost: 1024, left: 4, least: 16, most: 16},
		{name: "a short queue, large packets", short: true, cost: 4096, left: 16, least: 4, most: 4},
		{name: "packets that overtake each other", short: true, late: true, cost: 1024, left: 16, least: 32, most: 128},
	} {
		f := NewFlow(FlowConfig{Window: 128})
		f.charge(c.inFlight, c.cost)
		if c.short {
			f.rtt.begin(0)
			f.rtt.add(int64(ms))
			f.rtt.least = int64(ms)
			for range lateCount { // a seventh of the window
				f.onLost(1, 1)
			}
			f.cc.restore(128)
			f.adjust()
		}
		if c.late {
			f.onLate(lateCount)
		}
		if least, most := f.piece(2, c.cost, c.left); least != c.least || most != c.most {
			t.Errorf("%s: got %d to %d responses, want %d to %d", c.name, least, most, c.least, c.most)
		}
	}
}

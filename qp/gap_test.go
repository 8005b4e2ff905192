package qp

import (
	"testing"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/wire"
)

const us = ib.Instant(1000)

// reordered returns a responder, at a time, to which packets have come that others had overtaken by 4 us, over a round
// trip of 50 us, each with a NAK that had them sent again in vain. It expects psn.
func reordered(t *testing.T) (h *host, now ib.Instant, psn ib.PSN) {
	t.Helper()
	h, psn = keeper(t, ourNum, NewReorder(1)), peerPSN
	for range reorderedLeast {
		now += ms
		h.write(now, psn.Add(1), 1, 1)
		if !naks(h.emit(now, 4), psn) {
			t.Fatalf("got no NAK of PSN %d at once, want one before anything is known", psn)
		}
		h.write(now+4*us, psn, 0, 1)
		h.write(now+50*us, psn, 0, 1)
		h.write(now+50*us, psn.Add(1), 1, 1)
		h.emit(now+ms/2, 4)
		psn = psn.Add(2)
	}
	if h.q.resp.epsn != psn {
		t.Fatalf("got PSN %d expected, want %d", h.q.resp.epsn, psn)
	}
	return h, now + ms, psn
}

// naks reports whether the only packet is a sequence NAK of psn.
func naks(out []TxPacket, psn ib.PSN) bool {
	return len(out) == 1 && out[0].Opcode == wire.RCAck && out[0].AETH.Syndrome == wire.NAKSequence && out[0].PSN == psn
}

// TestReordered: where packets overtake each other by a little a NAK waits until the late one has come. What came
// before it is executed then, and acknowledged as if all had come in order.
func TestReordered(t *testing.T) {
	h, now, psn := reordered(t)
	h.write(now, psn.Add(1), 1, 2)
	h.write(now+us, psn.Add(2), 2, 2)
	if out := h.emit(now+us, 4); len(out) > 0 {
		t.Fatalf("got %v, want no answer to a gap for a moment", out)
	}
	if at := h.q.Deadline(); at != now+5*us {
		t.Errorf("got a deadline %d ns after the gap, want 5000", at-now)
	}
	h.write(now+4*us, psn, 0, 2)
	if h.q.resp.epsn != psn.Add(3) {
		t.Errorf("got PSN %d expected when the late packet has come, want %d", h.q.resp.epsn, psn.Add(3))
	}
	out := h.emit(now+ms, 4)
	if len(out) != 1 || out[0].AETH.Syndrome.IsNAK() || out[0].PSN != psn.Add(2) {
		t.Errorf("got %v, want an ACK of PSN %d", out, psn.Add(2))
	}
}

// TestReorderedTwice: of two gaps the second one waits on its own.
func TestReorderedTwice(t *testing.T) {
	h, now, psn := reordered(t)
	h.write(now, psn.Add(1), 1, 2)
	h.write(now+us, psn.Add(3), 3, 2)
	h.write(now+4*us, psn, 0, 2)
	if out := h.emit(now+8*us, 4); len(out) != 1 || out[0].AETH.Syndrome.IsNAK() || out[0].PSN != psn.Add(1) {
		t.Fatalf("got %v, want an ACK of PSN %d, and no answer to the second gap for 5 us", out, psn.Add(1))
	}
	if out := h.emit(now+9*us, 4); !naks(out, psn.Add(2)) {
		t.Errorf("got %v then, want a NAK of PSN %d", out, psn.Add(2))
	}
}

// TestReorderedNotReady: the late packet finds no receive. It has its RNR NAK then, and no sequence NAK follows.
func TestReorderedNotReady(t *testing.T) {
	h, now, psn := reordered(t)
	h.write(now, psn.Add(1), 1, 2)
	h.handle(now+us, request(wire.RCSendOnly, psn, []byte{1, 2, 3, 4}))
	out := h.emit(now+us, 4)
	if len(out) != 1 || !out[0].AETH.Syndrome.IsRNR() || out[0].PSN != psn {
		t.Fatalf("got %v, want an RNR NAK of PSN %d", out, psn)
	}
	if out := h.emit(now+ms, 4); len(out) > 0 {
		t.Errorf("got %v after the time for a late packet, want nothing behind an RNR NAK", out)
	}
}

// TestReorderedLost: what does not come in time gets its NAK, and each such wait makes the next one shorter.
func TestReorderedLost(t *testing.T) {
	h, now, psn := reordered(t)
	before := h.flow.reordering.wait
	h.write(now, psn.Add(1), 1, 2)
	if out := h.emit(now+5*us-1, 4); len(out) > 0 {
		t.Fatalf("got %v, want nothing before the wait is over", out)
	}
	if out := h.emit(now+5*us, 4); !naks(out, psn) {
		t.Fatalf("got %v, want a NAK of PSN %d", out, psn)
	}
	h.write(now+50*us, psn, 0, 2)
	h.write(now+50*us, psn.Add(1), 1, 2)
	if got := h.flow.reordering.wait; got >= before || h.q.resp.epsn != psn.Add(2) {
		t.Errorf("got a wait of %d ns and PSN %d expected, want less than %d and %d", got, h.q.resp.epsn, before,
			psn.Add(2))
	}
	for h.flow.reordering.wait > 0 {
		h.flow.reordering.inVain()
	}
	h.write(now+ms, psn.Add(3), 1, 2)
	if out := h.emit(now+ms, 4); !naks(out, psn.Add(2)) {
		t.Errorf("got %v, want a NAK at once when no packet was late any more", out)
	}
}

// TestLateByMuch: what is late by a good part of a round trip is not waited for, as the NAK would be as late.
func TestLateByMuch(t *testing.T) {
	var o reordering
	for i := range 100 {
		at := ib.Instant(i+1) * ms
		o.opened(at, ourNum, 7)
		o.arrived(at+20*us, ourNum, 8)
		o.repeated(at+50*us, ourNum, 7)
	}
	if o.wait != 0 {
		t.Errorf("got a wait of %d ns for packets that are late by 20 of 50 us, want none", o.wait)
	}
}

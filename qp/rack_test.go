package qp

import (
	"testing"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/wire"
)

// TestReorderWindow: each round trip with a packet that was late makes the window twice as long, up to two smoothed
// round trips, and losses make it shorter.
func TestReorderWindow(t *testing.T) {
	var w reorderWindow
	rtt := rttEstimate{least: 40_000, mean: 50_000}
	for i, want := range []ib.Instant{10_000, 20_000, 40_000, 80_000, 100_000, 100_000} {
		w.late(&rtt)
		w.late(&rtt)
		if got := w.wait(&rtt); got != want {
			t.Errorf("after %d round trips with late packets: got a window of %d ns, want %d", i+1, got, want)
		}
		rtt.round++
	}
	for i := range 5*reorderLosses - 1 {
		if w.lost(); w.wait(&rtt) == 0 {
			t.Fatalf("got no window after %d losses, want one", i+1)
		}
	}
	w.late(&rtt)
	for range reorderLosses - 1 {
		w.lost()
	}
	if got := w.wait(&rtt); got == 0 {
		t.Error("got no window though something was late, want one")
	}
}

// TestNAKWaits: a READ that a NAK asks for is waited for, but not if the peer has asked for what was behind it several
// times before, as who drops that does: then only if that takes no longer than a round trip.
func TestNAKWaits(t *testing.T) {
	var w nakWaits
	step := func(psn ib.PSN, long, want bool) {
		t.Helper()
		got := w.worth(psn, long)
		if got != want {
			t.Errorf("PSN %d: got a wait %v, want %v", psn, got, want)
		}
		if got {
			w.behind = psn + 10
		}
	}
	step(100, true, true)
	step(110, true, true) // the next READ is late, too
	step(200, true, true)
	step(300, true, true) // what came behind 200 was kept
	for psn := ib.PSN(400); psn < 400+dropsLeast*100; psn += 100 {
		step(psn, true, true)
		step(psn+10, true, psn < 600)
	}
	step(800, true, false)
	step(900, false, true)
	step(910, false, false)
}

// overtaken returns a requester that has sent eight packets, or READs, and takes a packet for lost only if it is late
// by more than 25 us.
func overtaken(t *testing.T, op ib.WROpcode, selective bool) (x *devices, a *host, now ib.Instant) {
	x = newDevices(t, network{oneWay: 25_000}, 1, 1)
	x.flow.SetSelective(selective)
	x.flow.cc = newCubic(1000)
	x.flow.adjust()
	a, now = x.pairs[0].a, 1_000_000
	for i := 0; i < 8 && (op == ib.WRRead || i == 0); i++ {
		size := 8 << 10
		if op == ib.WRRead {
			size = 1 << 10
		}
		a.post(&ib.SendWR{Opcode: op, Flags: ib.SendSignaled, SGL: []ib.SGE{a.sge(0, size)}, RemoteAddr: memAddr,
			RKey: x.pairs[0].b.region.Key()})
	}
	if out := a.emit(now, 16); len(out) != 8 {
		t.Fatalf("got %d packets, want 8", len(out))
	}
	x.flow.rtt = rttEstimate{least: 50_000, mean: 50_000}
	x.flow.rack.steps = 2
	return x, a, now + 50_000
}

// sentAgain returns which packets of the eight a requester sends again.
func sentAgain(h *host, now ib.Instant) (psns []int) {
	if h.q.Deadline() <= now {
		h.q.HandleTimeout(now)
	}
	for _, tx := range h.emit(now, 16) {
		if tx.Again {
			psns = append(psns, tx.PSN.Sub(ourPSN))
		}
	}
	return psns
}

// sackOf returns a SACK that expects the first of the eight packets, and has the given ones.
func sackOf(have ...int) wire.Packet {
	sack := wire.SACK{First: ourPSN.Add(1)}
	for _, i := range have {
		sack.Trigger = ourPSN.Add(i)
		sack.Set(sack.Trigger)
	}
	p := ack(ourPSN, 0)
	p.Opcode, p.Payload = wire.SACKOpcode, sack.Append(nil)
	return p
}

// TestLateWRITE: what a SACK shows to be missing is sent again when it is later than the reordering window, and not if
// it comes before.
func TestLateWRITE(t *testing.T) {
	_, a, now := overtaken(t, ib.WRWrite, true)
	a.handle(now, sackOf(1, 3))
	a.handle(now+10_000, sackOf(1, 2, 3, 5))
	if got := len(a.q.req.again.late.list); got != 3 {
		t.Errorf("got %d ranges that may be late, want 0, 2 and 4", got)
	}
	if got := sentAgain(a, now+24_000); len(got) != 0 {
		t.Errorf("got %v sent again within the window, want nothing", got)
	}
	if got := sentAgain(a, now+25_000); len(got) != 1 || got[0] != 0 {
		t.Errorf("got %v sent again after the window, want 0: 2 has come", got)
	}
	if got := sentAgain(a, now+35_000); len(got) != 1 || got[0] != 4 {
		t.Errorf("got %v sent again later, want 4", got)
	}
}

// TestLateREAD: a request that a SACK or a NAK shows to be missing is sent again when it is later than the window. To a
// peer without SACKs all go that follow it.
func TestLateREAD(t *testing.T) {
	for _, selective := range []bool{true, false} {
		for _, late := range []bool{true, false} {
			x, a, now := overtaken(t, ib.WRRead, selective)
			nak := ack(ourPSN, 0)
			nak.AETH.Syndrome = wire.NAKSequence
			a.handle(now, nak)
			want := 8
			if selective {
				want = 2
				a.handle(now, sackOf(1, 2, 3, 5, 6, 7))
			}
			if got := sentAgain(a, now+24_000); len(got) != 0 {
				t.Errorf("selective %v: got %v sent again within the window, want nothing", selective, got)
			}
			if late {
				want = 0
				for i := range 8 {
					p := ack(ourPSN.Add(i), 0)
					p.Opcode, p.Payload = wire.RCReadRespOnly, x.payload(1<<10)
					a.handle(now+24_000, p)
				}
			}
			if got := sentAgain(a, now+25_000); len(got) != want {
				t.Errorf("selective %v, late %v: got %v sent again after the window, want %d", selective, late, got,
					want)
			}
		}
	}
}

// TestLateResponses: responses that are missing are asked for again when they are later than the window.
func TestLateResponses(t *testing.T) {
	x, a, now := overtaken(t, ib.WRRead, false)
	respond := func(at ib.Instant, i int) {
		p := ack(ourPSN.Add(i), 0)
		p.Opcode, p.Payload = wire.RCReadRespOnly, x.payload(1<<10)
		a.handle(at, p)
	}
	respond(now, 1)
	respond(now+10_000, 3)
	if got := sentAgain(a, now+24_000); len(got) != 0 {
		t.Errorf("got %v asked for within the window, want nothing", got)
	}
	respond(now+24_000, 2)
	if got := sentAgain(a, now+25_000); len(got) != 1 || got[0] != 0 {
		t.Errorf("got %v asked for after the window, want 0", got)
	}
}

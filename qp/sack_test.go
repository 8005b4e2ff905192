package qp

import (
	"math/rand/v2"
	"testing"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/tests/require"
	"github.com/goroce/goroce/wire"
)

// TestForgedSACKs: SACKs that say anything, between true ones and losses, complete and end nothing. All requests
// complete, none before the peer has carried it out.
func TestForgedSACKs(t *testing.T) {
	for seed := range uint64(require.Rounds(20, 500)) {
		x := newDevices(t, network{oneWay: 25_000, drop: 0.03}, 1, seed)
		sacks(x)
		rng := rand.New(rand.NewPCG(seed, 1))
		p := x.pairs[0]
		x.passes = func(to *host, pkt *wire.Packet) bool {
			if done, carried := len(p.done), int(p.b.q.resp.msn); done > carried {
				t.Fatalf("seed %d: %d requests complete, want at most the %d that the peer has carried out", seed, done,
					carried)
			}
			if to == p.a && rng.IntN(10) == 0 {
				to.handle(x.now, forgedSACK(rng, &p.a.q.req.win))
			}
			return true
		}
		op := []ib.WROpcode{ib.WRWrite, ib.WRSend}[seed%2]
		x.run(load{op: op, size: 16 << 10, depth: 16, n: 60})
		if p.failed != ib.WCSuccess {
			t.Fatalf("seed %d: got %v, want success", seed, p.failed)
		}
		if w := &p.a.q.req.win; w.need.n+w.held.n+w.sacked.n != 0 || p.a.flow.packets != 0 || p.a.flow.bytes != 0 {
			t.Fatalf("seed %d: at the end got %d needed, %d held, %d sacked, and %d packets in flight, want none", seed,
				w.need.n, w.held.n, w.sacked.n, p.a.flow.packets)
		}
	}
}

// forgedSACK returns a SACK about PSNs in and around a window.
func forgedSACK(rng *rand.Rand, w *window) wire.Packet {
	around := func() ib.PSN { return w.una.Add(rng.IntN(2*w.inFlight()+20) - 10) }
	sack := wire.SACK{Trigger: around(), First: around()}
	for range rng.IntN(8) {
		at := rng.IntN(w.inFlight() + 10)
		for i := range 1 + rng.IntN(40) {
			sack.Set(w.una.Add(at + i))
		}
	}
	b := sack.Append(nil)
	if rng.IntN(10) == 0 {
		b = b[:rng.IntN(len(b)+1)]
	}
	return wire.Packet{BTH: wire.BTH{Opcode: wire.SACKOpcode, PSN: around()}, Payload: b}
}

// TestStrictUnseen: to a peer that has not announced itself nothing is sent that is not in the architecture.
func TestStrictUnseen(t *testing.T) {
	x := newDevices(t, network{oneWay: 25_000, drop: 0.05, late: 0.05, delay: 100_000}, 1, 1)
	x.passes = func(_ *host, p *wire.Packet) bool {
		if p.Opcode.Service() != wire.RC {
			t.Errorf("got %v sent, want opcodes of RC", p.Opcode)
		}
		return true
	}
	x.run(load{op: ib.WRSend, size: 16 << 10, depth: 16, n: 60})
	if x.flow.TakeNews() != PeerWanted {
		t.Error("got no news that packets are lost")
	}
}

// TestSilentPeer: a peer that is taken to send SACKs and sends none, as a strict one does, is taken for strict.
func TestSilentPeer(t *testing.T) {
	x := newDevices(t, network{oneWay: 25_000, drop: 0.05}, 1, 1)
	x.flow.SetSelective(true)
	x.run(load{op: ib.WRSend, size: 16 << 10, depth: 16, n: 100})
	if p := x.pairs[0]; p.failed != ib.WCSuccess || x.flow.selective || x.flow.TakeNews() != PeerSilent {
		t.Errorf("got %v, and SACKs expected: %v, want success and no SACKs expected", p.failed, x.flow.selective)
	}
}

// TestTwice: a SACK tells how many requests have arrived twice, so the requester knows what it need not have sent, and
// a SACK that is late itself still shows that the peer sends them.
func TestTwice(t *testing.T) {
	for _, op := range []ib.WROpcode{ib.WRWrite, ib.WRSend} {
		x := newDevices(t, network{oneWay: 25_000, late: 0.1, delay: 50_000}, 1, 1)
		sacks(x)
		x.run(load{op: op, size: 64 << 10, depth: 16, n: 100})
		p := x.pairs[0]
		if got, want := p.a.stats.SpuriousPkts, p.b.stats.DuplicateRequest; got < want*9/10 || got > want {
			t.Errorf("%v: got %d packets that were sent again in vain, want about %d that arrived twice", op, got,
				want)
		}
		if !x.flow.selective {
			t.Errorf("%v: the peer is taken not to send SACKs any more", op)
		}
	}
}

// TestTwiceOvertaken: a SACK that another one has overtaken counts nothing, and a QP that begins anew counts from 0.
func TestTwiceOvertaken(t *testing.T) {
	x := newDevices(t, network{oneWay: 25_000}, 1, 1)
	sacks(x)
	a := x.pairs[0].a
	x.post(x.pairs[0], load{op: ib.WRWrite, size: 64 << 10, depth: 1, n: 1})
	a.emit(x.now, 8)
	a.q.repeats(ourPSN, 60)
	for _, twice := range []uint8{5, 3, 5, 250, 6} {
		sack := wire.SACK{Twice: twice, Trigger: ourPSN.Add(2), First: ourPSN.Add(1)}
		p := ack(ourPSN, 0)
		p.Opcode, p.Payload = wire.SACKOpcode, sack.Append(nil)
		a.handle(x.now, p)
	}
	if got := a.stats.SpuriousPkts; got != 6 {
		t.Errorf("got %d packets sent again in vain, want 6", got)
	}
	a.q.resp.twice = 7
	a.must(a.modify(ib.StateReset, ib.QPAttr{}, 0))
	a.up(ib.StateRTS, goodAttr(x.pairs[0].b.q.Num(), ourPSN, peerPSN))
	if a.q.req.twice != 0 || a.q.resp.twice != 0 {
		t.Errorf("got %d and %d counted after RESET, want 0", a.q.req.twice, a.q.resp.twice)
	}
}

package qp

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/tests/require"
	"github.com/goroce/goroce/wire"
)

// keeper is a responder whose peer is played by the test, and that shares the memory of its reorder buffer with others.
func keeper(t *testing.T, num ib.QPN, m *Reorder) *host {
	h := newHost(t, num)
	h.q.cfg.Limits.Reorder = m
	a := goodAttr(peerNum, ourPSN, peerPSN)
	a.MaxDestRdAtomic, a.PathMTU = 4, ib.MTU1024
	h.up(ib.StateRTS, a)
	return h
}

// write is a WRITE ONLY of one byte, v, to offset at.
func (h *host) write(now ib.Instant, psn ib.PSN, at int, v byte) {
	p := request(wire.RCWriteOnly, psn, []byte{v})
	p.RETH = wire.RETH{VA: memAddr + uint64(at), RKey: h.region.Key(), Len: 1}
	p.PadCnt = 3
	h.handle(now, p)
}

// TestKeptBounds: a QP keeps a quarter of its shard's memory at most, and the shard no more than it has. What was
// not added to for a second makes room. Each QP that ends gives its memory back.
func TestKeptBounds(t *testing.T) {
	const most = 64 << 10
	m := NewReorder(reorderBytes / most)
	var qps []*host
	full := func(now ib.Instant) (kept int) {
		h := keeper(t, ib.QPN(0x100+len(qps)), m)
		qps = append(qps, h)
		for i := 1; i < windowSize; i++ {
			h.write(now, peerPSN.Add(i), 0, 1)
		}
		if m.bytes > most {
			t.Fatalf("QP %d: got %d bytes in use, want %d at most", len(qps), m.bytes, most)
		}
		return int(h.stats.KeptRequests)
	}
	for i := range reorderShare {
		if got, want := full(0), most/reorderShare/(1+earlyOverhead); got < want-1 || got > want {
			t.Errorf("QP %d: got %d packets kept, want about %d", i, got, want)
		}
	}
	if got := full(reorderRest - 1); got > reorderShare {
		t.Errorf("a fifth QP, soon after: got %d packets kept, want what the quarters leave", got)
	}
	if got := full(reorderRest); got == 0 {
		t.Error("a sixth QP, later: got no packets kept, want some")
	}
	if qps[0].q.resp.early != nil {
		t.Error("got the packets of the first QP kept for ever, want them dropped for the sixth")
	}
	for _, h := range qps {
		h.must(h.q.Modify(0, &ib.QPAttr{State: ib.StateErr}, ib.AttrState))
	}
	for _, e := range m.spare {
		m.bytes -= e.size()
	}
	if m.bytes != 0 || m.queues.next != &m.queues {
		t.Errorf("got %d bytes in use after the last QP has ended, want 0", m.bytes)
	}
}

// TestKeptForgotten: PSNs come round again. A packet that was kept must not be executed in place of
// another one with its PSN, whichever way the PSNs between were used.
func TestKeptForgotten(t *testing.T) {
	h := keeper(t, ourNum, NewReorder(1))
	h.write(0, peerPSN.Add(3), 3, 0xEE) // kept
	read := request(wire.RCReadRequest, peerPSN, nil)
	read.RETH = wire.RETH{VA: memAddr, RKey: h.region.Key(), Len: memSize} // 1,024 PSNs, past the kept one
	h.handle(0, read)
	if h.q.resp.early != nil {
		t.Errorf("got a kept packet that a READ of %d packets has passed, want none", memSize/1024)
	}
	h.write(0, h.q.resp.epsn.Add(2), 2, 0xEE) // kept
	for range 3 {
		h.write(0, h.q.resp.epsn, 4, 1)
	}
	if h.write(0, h.q.resp.epsn, 4, 1); h.q.resp.early != nil {
		t.Error("got a packet kept whose PSN was executed, want none")
	}
	if h.mem[2] != 0 || h.mem[3] != 0 || h.stats.KeptUsed != 0 {
		t.Errorf("got bytes %#x and %d kept packets executed, want none", h.mem[2:4], h.stats.KeptUsed)
	}
}

// TestKeptWindow: what is beyond a window is not kept.
func TestKeptWindow(t *testing.T) {
	h := keeper(t, ourNum, NewReorder(1))
	for psn, want := range map[int]uint64{1: 1, windowSize - 1: 1, windowSize: 0, 1 << 22: 0} {
		before := h.stats.KeptRequests
		if h.write(0, peerPSN.Add(psn), 0, 1); h.stats.KeptRequests-before != want {
			t.Errorf("%d PSNs beyond the expected one: got %d kept, want %d", psn, h.stats.KeptRequests-before, want)
		}
	}
}

// TestKeptNotReady: a kept SEND for which no receive is posted gets its RNR NAK, and those behind it wait on.
func TestKeptNotReady(t *testing.T) {
	h := keeper(t, ourNum, NewReorder(1))
	send := func(psn int) { h.handle(0, request(wire.RCSendOnly, peerPSN.Add(psn), []byte{1, 2, 3, 4})) }
	send(1)
	send(2)
	h.postRecv(&ib.RecvWR{ID: 1, SGL: []ib.SGE{h.sge(0, 4)}})
	send(0)
	h.emit(1e6, 4)
	send(3) // 1 and 2 stand in for their repetitions, 1 has no receive
	out := h.emit(2e6, 4)
	if len(out) != 1 || !out[0].AETH.Syndrome.IsRNR() || out[0].PSN != peerPSN.Add(1) {
		t.Fatalf("got %v, want an RNR NAK of PSN %d", out, peerPSN.Add(1))
	}
	for id := range uint64(3) {
		h.postRecv(&ib.RecvWR{ID: 2 + id, SGL: []ib.SGE{h.sge(0, 4)}})
	}
	send(1)
	send(3)
	if h.q.resp.epsn != peerPSN.Add(4) {
		t.Errorf("got PSN %d expected after all were executed, want %d", h.q.resp.epsn, peerPSN.Add(4))
	}
}

// TestKeptUnseen: whatever is lost, repeated or late, a responder that keeps requests sends what one that keeps none
// sends on a network that has not lost those which stood in, and leaves the same in memory.
func TestKeptUnseen(t *testing.T) {
	used := uint64(0)
	for seed := range uint64(require.Rounds(200, 20000)) {
		rng := rand.New(rand.NewPCG(seed, 0))
		keeps, strict := keeper(t, ourNum, NewReorder(1)), keeper(t, ourNum, nil)
		hosts := []*host{keeps, strict}
		requests := randomRequests(rng, keeps)
		for _, h := range hosts {
			for i := range hostEntries - 1 {
				h.postRecv(&ib.RecvWR{ID: uint64(i), SGL: []ib.SGE{h.sge(1024, 1024)}})
			}
		}
		next := 0
		for step := range 400 {
			now := ib.Instant(step) * 1000
			switch rng.IntN(12) {
			case 0: // lost
				next++
			case 1: // late, or twice
				next = rng.IntN(next + 1)
			}
			if next >= len(requests) {
				next = keeps.q.resp.epsn.Sub(peerPSN) % len(requests) // a probe of the oldest
			}
			p, from := requests[next], keeps.q.resp.epsn
			next++
			keeps.flow.reordering = reordering{} // a NAK that waits comes later than a strict one's
			keeps.handle(now, p)
			for psn := from; psn.Before(keeps.q.resp.epsn); psn = psn.Add(1) {
				if psn != p.PSN {
					strict.handle(now, requests[psn.Sub(peerPSN)])
				}
			}
			strict.handle(now, p)
			got, want := answersOf(keeps, now), answersOf(strict, now)
			if !reflect.DeepEqual(got, want) {
				t.Fatalf("seed %d, step %d, PSN %d: got %v, want %v", seed, step, p.PSN, got, want)
			}
			for _, a := range got { // go-back-N
				if a.Opcode == wire.RCAck && a.AETH.Syndrome == wire.NAKSequence && rng.IntN(4) > 0 {
					next = a.PSN.Sub(peerPSN)
				}
			}
		}
		if !bytes.Equal(keeps.mem, strict.mem) {
			t.Fatalf("seed %d: memory holds other bytes, want those without kept packets", seed)
		}
		used += keeps.stats.KeptUsed
	}
	if used == 0 {
		t.Error("no kept packet stood in: this tests nothing")
	}
}

// randomRequests returns requests of one PSN each that a host takes.
func randomRequests(rng *rand.Rand, h *host) []wire.Packet {
	var list []wire.Packet
	for i := range 100 {
		psn := peerPSN.Add(i)
		data := fmt.Appendf(nil, "%04d", i)
		p := request(wire.RCSendOnly, psn, data)
		reth := wire.RETH{VA: memAddr + uint64(8*rng.IntN(64)), RKey: h.region.Key(), Len: 4}
		switch rng.IntN(4) {
		case 0:
			p = request(wire.RCWriteOnly, psn, data)
			p.RETH = reth
		case 1:
			p = request(wire.RCReadRequest, psn, nil)
			p.RETH = reth
		case 2:
			p = request(wire.RCFetchAdd, psn, nil)
			p.Atomic = wire.AtomicETH{VA: reth.VA, RKey: reth.RKey, Swap: 1}
		}
		p.AckReq = rng.IntN(3) > 0
		list = append(list, p)
	}
	return list
}

// answersOf returns what a host sends.
func answersOf(h *host, now ib.Instant) (list []wire.Packet) {
	for _, tx := range h.emit(now, 16) {
		list = append(list, tx.Packet)
	}
	return list
}

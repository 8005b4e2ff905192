package qp

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/mr"
	"github.com/goroce/goroce/tests/require"
	"github.com/goroce/goroce/wire"
)

// answers describes the packets that a responder sends.
func (h *host) answers(now ib.Instant) (list string) {
	for _, p := range h.emit(now, 8) {
		list += fmt.Sprintf("%v %v %+v; ", p.Opcode, p.PSN, p.AETH)
	}
	return list
}

// twins returns two responders in the same state.
func twins(t *testing.T) [2]*host {
	both := [2]*host{newHost(t, ourNum), newHost(t, ourNum)}
	for _, h := range both {
		h.setLate(2 * hostEntries)
		h.up(ib.StateRTS, goodAttr(peerNum, ourPSN, peerPSN))
	}
	return both
}

// told holds the answers of a responder and its state.
func (h *host) told(now ib.Instant) string {
	r := &h.q.resp
	return fmt.Sprintf("%s epsn %v msn %v acked %v discarding %v, %v", h.answers(now), r.epsn, r.msn, r.acked,
		r.owed.discarding, h.q.State())
}

// TestForeseenRequests checks that a responder gives the same results with and without
// header prediction, whatever packets come between the WRITEs.
func TestForeseenRequests(t *testing.T) {
	const packets = 200
	seeds := require.Rounds(60, 300)
	t.Logf("seeds 0 to %d", seeds-1)
	taken := 0
	for seed := range uint64(seeds) {
		hosts := twins(t)
		short, long := hosts[0], hosts[1]
		rng := rand.New(rand.NewPCG(seed, 1))
		now := ib.Instant(0)
		for i := range packets {
			p := anyWrite(rng, short)
			access := rng.IntN(100)
			now += ib.Instant(rng.IntN(10_000))
			var got [2]string
			for k, h := range hosts {
				if h == long {
					h.q.resp.again = nil
				}
				if access == 0 && h.q.State() == ib.StateRTS {
					h.must(h.modify(ib.StateRTS, ib.QPAttr{Access: ib.RemoteRead}, ib.AttrAccess))
				}
				if access == 1 && h.region.Valid() {
					h.must(h.table.Deregister(h.region))
				}
				h.handle(now, p)
				if h == short && h.q.resp.again != nil && p.Opcode == wire.RCWriteOnly {
					taken++
				}
				got[k] = h.told(now)
			}
			if got[0] != got[1] || !bytes.Equal(short.mem[:1<<17], long.mem[:1<<17]) {
				t.Fatalf("seed %d, packet %d, %v PSN %v: %s\nlooked at anew: %s", seed, i, p.Opcode, p.PSN, got[0],
					got[1])
			}
		}
	}
	if taken < seeds {
		t.Errorf("%d WRITEs could be foreseen; the test wants more", taken)
	}
}

// anyWrite returns a WRITE ONLY that is mostly, but not always, what a responder
// expects next.
func anyWrite(rng *rand.Rand, h *host) wire.Packet {
	n := 4 * rng.IntN(257)
	payload := make([]byte, n)
	for i := range payload {
		payload[i] = byte(rng.Uint32())
	}
	p := request(wire.RCWriteOnly, h.q.resp.epsn, payload)
	p.AckReq = rng.IntN(4) == 0
	p.RETH = wire.RETH{VA: memAddr + rng.Uint64N(1<<16), RKey: h.region.Key(), Len: uint32(n)}
	switch rng.IntN(70) {
	case 0:
		p.PSN = p.PSN.Add(rng.IntN(5) - 2)
	case 1:
		p.RETH.Len++
	case 2:
		p.RETH.VA = memAddr + memSize - 512
	case 3:
		p.RETH.RKey++
	case 4:
		p.RETH.RKey, p.RETH.VA = h.slowReg.Key(), slowAddr
	case 5:
		p.Opcode = wire.RCWriteMiddle
	case 6:
		p = request(wire.RCWriteFirst, p.PSN, make([]byte, 1024))
		p.RETH = wire.RETH{VA: memAddr, RKey: h.region.Key(), Len: 2000}
	case 7:
		p = request(wire.RCSendOnly, p.PSN, payload)
	case 8:
		p.Payload, p.RETH.Len = make([]byte, 1028), 1028 // more than the path MTU
	}
	return p
}

// TestForeseenTrain checks that the packets of a train equal those that are built one by
// one, with any number of packets for each call.
func TestForeseenTrain(t *testing.T) {
	for _, batch := range []int{1, 2, 3, 8, 64} {
		var got [][]TxPacket
		for _, size := range []int{batch, 1} {
			a, b := connected(t)
			a.q.cfg.Trains = true
			var all []TxPacket
			for _, n := range []int{100, 5 * 1024, 1024, 70*1024 + 3, 8, 20_000} {
				a.post(&ib.SendWR{Opcode: ib.WRWrite, SGL: []ib.SGE{a.sge(n, n)}, RemoteAddr: memAddr,
					RKey: b.region.Key()})
			}
			for now := ib.Instant(0); len(all) < 114 && now < 1000; now++ {
				out := a.emit(now, size)
				all = append(all, out...)
				if len(out) > 0 {
					a.handle(now, ack(out[len(out)-1].PSN, ib.PSN(len(all))))
				}
			}
			got = append(got, all)
		}
		if len(got[0]) != len(got[1]) {
			t.Fatalf("batches of %d: %d packets, want %d as one by one", batch, len(got[0]), len(got[1]))
		}
		alike, unasked := 0, 0
		for i := range got[0] {
			p, want := &got[0][i], &got[1][i]
			inTrain := i > 0 && got[0][i-1].Train > 0
			if inTrain {
				alike++
			}
			if unasked++; p.AckReq {
				unasked = 0
			}
			if unasked >= askMost {
				t.Fatalf("batches of %d: packet %d, and none has asked for an ACK since %d", batch, i, unasked)
			}
			if inTrain && (p.AckReq || p.Train != got[0][i-1].Train-1 || p.PSN != got[0][i-1].PSN.Add(1) ||
				p.Len != got[0][i-1].Len) {
				t.Errorf("packet %d is not like the one before: %+v", i, p.BTH)
			}
			if p.PSN != want.PSN || p.Opcode != want.Opcode || p.RETH != want.RETH ||
				!bytes.Equal(data(t, p), data(t, want)) {
				t.Errorf("batches of %d, packet %d: %+v %+v, one by one %+v %+v", batch, i, p.BTH, p.RETH, want.BTH,
					want.RETH)
			}
		}
		if most := len(got[0]) * (batch - 1) / batch; alike < most/2 {
			t.Errorf("batches of %d: %d of %d packets were foreseen, want at least %d", batch, alike, len(got[0]),
				most/2)
		}
	}
}

// data returns the payload of a packet.
func data(t *testing.T, p *TxPacket) []byte {
	t.Helper()
	b := make([]byte, p.Len)
	if p.Inline != nil {
		copy(b, p.Inline)
	} else if err := mr.Gather(b, p.SGL, p.Off); err != nil {
		t.Fatal(err)
	}
	return b
}

// TestForeseenFrames checks that alike frames have the same effect together as one by one,
// and that frames which HandleAlike does not take have no effect.
func TestForeseenFrames(t *testing.T) {
	const seeds, runs = 200, 30
	t.Logf("seeds 0 to %d", seeds-1)
	taken := 0
	for seed := range uint64(seeds) {
		hosts := twins(t)
		whole, single := hosts[0], hosts[1]
		rng := rand.New(rand.NewPCG(seed, 2))
		for i := range runs {
			p := anyWrite(rng, whole)
			p.PadCnt, p.AckReq = wire.PadFor(len(p.Payload)), rng.IntN(2) == 0
			if rng.IntN(200) == 0 && whole.region.Valid() {
				for _, h := range hosts {
					h.must(h.table.Deregister(h.region))
				}
			}
			frames, size := train(rng, p, 1+rng.IntN(20), memAddr, memSize)
			now := ib.Instant(i * 1000)
			n := feed(t, hosts, now, frames, size)
			taken += n
			whole.placeAll(now)
			single.placeAll(now)
			if got, want := whole.told(now), single.told(now); got != want ||
				!bytes.Equal(whole.mem[:1<<17], single.mem[:1<<17]) {
				t.Fatalf("seed %d, run %d of %d %v, %d taken: %s\none by one: %s", seed, i, len(frames)/size, p.Opcode,
					n, got, want)
			}
		}
	}
	if taken < 10*seeds {
		t.Errorf("%d frames were taken; the test wants more", taken)
	}
}

// TestLateFrames checks the same for memory that is not direct, where frames of one call
// are placed together, even if the memory ends early.
func TestLateFrames(t *testing.T) {
	const seeds, runs = 400, 10
	t.Logf("seeds 0 to %d", seeds-1)
	placements, packets := 0, 0
	for seed := range uint64(seeds) {
		rng := rand.New(rand.NewPCG(seed, 3))
		hosts := twins(t)
		whole, single := hosts[0], hosts[1]
		end := min(rng.IntN(8*4096), 4096)
		for _, h := range hosts {
			h.slow.B = h.slow.B[:end]
		}
		for i := range runs {
			p := request(wire.RCWriteOnly, whole.q.resp.epsn, bytes.Repeat([]byte{byte(i + 1)}, 4+4*rng.IntN(50)))
			p.AckReq = rng.IntN(2) == 0
			p.RETH = wire.RETH{VA: slowAddr + rng.Uint64N(1000), RKey: whole.slowReg.Key(), Len: uint32(len(p.Payload))}
			frames, size := train(rng, p, 1+rng.IntN(20), slowAddr, 4096)
			now := ib.Instant(i * 1000)
			n := feed(t, hosts, now, frames, size)
			a, b := whole.placeAll(now)
			single.placeAll(now)
			placements, packets = placements+a, packets+b
			if got, want := whole.told(now), single.told(now); got != want ||
				!bytes.Equal(whole.slow.B, single.slow.B) {
				t.Fatalf("seed %d, run %d of %d, %d taken, memory of %d bytes: %s\none by one: %s", seed, i,
					len(frames)/size, n, end, got, want)
			}
		}
	}
	if packets < 2*placements {
		t.Errorf("%d placements of %d packets; the test wants more together", placements, packets)
	}
}

// TestLateRoom checks that a train is taken as far as there is room for its placement.
func TestLateRoom(t *testing.T) {
	const room, each = 8, 100
	h := twins(t)[0]
	h.setLate(room)
	for _, take := range []int{room - 1, 0, room} { // after a first packet, none, and all that there is room for
		p := request(wire.RCWriteOnly, h.q.resp.epsn, make([]byte, each))
		p.RETH = wire.RETH{VA: slowAddr, RKey: h.slowReg.Key(), Len: each}
		frames, size := train(rand.New(rand.NewPCG(5, 5)), p, 2*room, slowAddr, 1)
		if take == room-1 {
			h.handle(0, p)
			frames = frames[size:]
		}
		if n := h.q.HandleAlike(0, frames, size, wire.NotECT); n != take {
			t.Errorf("%d packets were taken, want %d", n, take)
		}
		if take == 0 {
			h.placeAll(0)
		}
	}
}

// feed passes frames to both twins: to the first together, to the other, without header
// prediction, one by one. It returns how many were taken together.
func feed(t *testing.T, hosts [2]*host, now ib.Instant, frames []byte, size int) (taken int) {
	t.Helper()
	whole, single := hosts[0], hosts[1]
	for k := 0; k < len(frames); k += size {
		if k == size { // the first frame goes to HandlePackets
			taken = whole.q.HandleAlike(now, frames[size:], size, wire.NotECT)
		}
		p := decode(t, frames[k:k+size])
		if k == 0 || k > taken*size {
			whole.handle(now, p)
		}
		single.q.resp.again = nil
		single.handle(now, p)
	}
	return taken
}

// placeAll executes all pending placements, and returns how many there were, of how many
// packets.
func (h *host) placeAll(now ib.Instant) (placements, packets int) {
	for _, p := range h.placements() {
		old, err := p.Do()
		h.q.Placed(now, p.ID, old, err)
		placements++
		packets += p.Packets()
	}
	return placements, packets
}

// train returns n frames without ICRC, each like the one before, of which the first is p.
// Some of them write elsewhere in a piece of memory.
func train(rng *rand.Rand, p wire.Packet, n int, at, length uint64) (frames []byte, size int) {
	pad := make([]byte, int(p.PadCnt)+wire.ICRCLen)
	for range n {
		frames = p.AppendHeaders(frames)
		frames = append(append(frames, p.Payload...), pad...)
		p.AckReq, p.PSN = false, p.PSN.Add(1)
		p.RETH.VA += uint64(len(p.Payload))
		if rng.IntN(8) == 0 { // another message
			p.RETH.VA = at + rng.Uint64N(length)
		}
	}
	return frames, len(frames) / n
}

func decode(t *testing.T, frame []byte) (p wire.Packet) {
	t.Helper()
	if err := p.Decode(frame[:len(frame)-wire.ICRCLen]); err != nil {
		t.Fatal(err)
	}
	return p
}

package qp

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/wire"
)

// TestTrainsMakeNoDifference lets two pairs of QPs exchange the same messages and lose the
// same packets. One pair uses HandleAlike, the other handles each packet by itself. Both
// must send the same packets, make the same completions and end with the same memory. Every
// other responder stays in RTR, as programs leave a QP that only receives.
func TestTrainsMakeNoDifference(t *testing.T) {
	const seeds = 25
	t.Logf("seeds 0 to %d", seeds-1)
	taken := map[taking]int{}
	for seed := range uint64(seeds) {
		whole, single := newTrainPair(t, seed), newTrainPair(t, seed)
		whole.taken = taken
		for round := range 400 {
			got, want := whole.round(round), single.round(round)
			if got != want {
				t.Fatalf("seed %d, round %d:\n%s\none by one:\n%s", seed, round, got, want)
			}
			if whole.done == whole.posted {
				break
			}
		}
		if whole.done != whole.posted {
			t.Fatalf("seed %d: got %d messages done, want %d", seed, whole.done, whole.posted)
		}
		for i := range 2 {
			if !bytes.Equal(whole.hosts[i].mem, single.hosts[i].mem) {
				t.Fatalf("seed %d: host %d has other memory than one by one", seed, i)
			}
		}
	}
	t.Log(taken)
	for _, by := range []taking{{wire.RCWriteOnly, ib.StateRTS}, {wire.RCWriteOnly, ib.StateRTR}, {wire.RCSendMiddle,
		ib.StateRTS},
		{wire.RCSendMiddle, ib.StateRTR}, {wire.RCReadRespMiddle, ib.StateRTS}} {
		if taken[by] < 10*seeds {
			t.Errorf("%d %v were taken together in %v; the test wants more", taken[by], by.op, by.state)
		}
	}
}

// taking is what HandleAlike took, and in which state.
type taking struct {
	op    wire.Opcode
	state ib.QPState
}

const trainMessages = 12

// trainPair is a requester and a responder.
type trainPair struct {
	t      *testing.T
	seed   uint64
	hosts  [2]*host
	now    ib.Instant
	taken  map[taking]int // packets that HandleAlike took; nil if it is not used
	done   int            // messages
	posted int
}

func newTrainPair(t *testing.T, seed uint64) *trainPair {
	a, b := connected(t)
	if seed%2 == 1 {
		b = newHost(t, peerNum)
		b.up(ib.StateRTR, goodAttr(ourNum, peerPSN, ourPSN))
	}
	x := &trainPair{t: t, seed: seed, hosts: [2]*host{a, b}}
	rng := rand.New(rand.NewPCG(seed, 3))
	for _, h := range x.hosts {
		h.q.cfg.Trains = true
		for i := range h.mem {
			h.mem[i] = byte(i*7) ^ byte(h.q.Num())
		}
	}
	for i := range trainMessages {
		size := rng.IntN(40 << 10)
		split := rng.IntN(size + 1)
		sgl := []ib.SGE{a.sge(i<<16, split), a.sge(i<<16+split, size-split)}
		op := []ib.WROpcode{ib.WRWrite, ib.WRSend, ib.WRRead}[rng.IntN(3)]
		if op == ib.WRWrite && rng.IntN(2) == 0 {
			x.postShort(rng, i)
			continue
		}
		if op == ib.WRSend && rng.IntN(20) > 0 { // else the receive is posted too late
			b.postRecv(&ib.RecvWR{ID: uint64(i), SGL: []ib.SGE{b.sge(i<<16, split), b.sge(i<<16+split, size-split)}})
		}
		a.post(&ib.SendWR{ID: uint64(i), Opcode: op, Flags: ib.SendSignaled, SGL: sgl, RemoteAddr: memAddr +
			uint64(i<<16), RKey: b.region.Key()})
		x.posted++
	}
	return x
}

// postShort posts WRITEs of a packet or nothing, most of which are like the one before but for their addresses.
func (x *trainPair) postShort(rng *rand.Rand, i int) {
	a, b := x.hosts[0], x.hosts[1]
	size, key := 1+rng.IntN(100), b.region.Key()
	for range 8 {
		from, to := i<<16+rng.IntN(1<<15), memAddr+uint64(i<<16+rng.IntN(1<<15))
		wr := ib.SendWR{ID: uint64(i), Opcode: ib.WRWrite, SGL: []ib.SGE{a.sge(from, size)}, RemoteAddr: to, RKey: key}
		switch rng.IntN(24) {
		case 0:
			wr.SGL = []ib.SGE{a.sge(from, size/2), a.sge(from+size/2, size-size/2)}
		case 1:
			wr.Flags, wr.SGL, wr.Inline = ib.SendInline, nil, a.mem[from:][:min(size, 64)]
		case 2:
			wr.SGL = []ib.SGE{a.sge(from, rng.IntN(size))}
		case 3:
			wr.Flags = ib.SendFence
		case 4:
			wr.Opcode, wr.SGL = ib.WRRead, []ib.SGE{a.sge(from, size)}
		}
		wr.Flags |= ib.SendSignaled
		a.post(&wr)
		x.posted++
	}
}

// round lets each host send, or advances the time if none does. It returns a description of
// what happened.
func (x *trainPair) round(n int) (happened string) {
	x.now += 10_000
	for i, from := range x.hosts {
		for _, h := range x.hosts {
			if h.q.Deadline() <= x.now {
				h.q.HandleTimeout(x.now)
			}
		}
		happened += x.deliver(from.emit(x.now, 64), x.hosts[1-i], rand.New(rand.NewPCG(x.seed, uint64(2*n+i))))
	}
	if happened == "" {
		x.hosts[1].postRecv(&ib.RecvWR{ID: 99, SGL: []ib.SGE{x.hosts[1].sge(15<<16, 1<<16)}})
		x.now = max(x.now, min(x.hosts[0].q.Deadline(), x.hosts[1].q.Deadline()))
	}
	var wcs [16]ib.WC
	for i, cq := range []interface{ Poll([]ib.WC) int }{x.hosts[0].sendCQ, x.hosts[1].recvCQ} {
		for _, wc := range wcs[:cq.Poll(wcs[:])] {
			happened += fmt.Sprintf("host %d: %+v\n", i, wc)
			if i == 0 {
				x.done++
			}
		}
	}
	return happened + fmt.Sprintf("%+v %+v", x.hosts[0].stats, x.hosts[1].stats)
}

// deliver passes packets on, except those that are lost.
func (x *trainPair) deliver(txs []TxPacket, to *host, rng *rand.Rand) (list string) {
	var frames [][]byte
	for i := range txs {
		if txs[i].Again && txs[i].Train > 0 {
			x.t.Errorf("seed %d: %v %v was sent before, and a train follows", x.seed, txs[i].Opcode, txs[i].PSN)
		}
		p := txs[i].Packet
		p.Payload = data(x.t, &txs[i])
		list += fmt.Sprintf("%v %v ack %v, %d bytes\n", p.Opcode, p.PSN, p.AckReq, len(p.Payload))
		if rng.IntN(60) > 0 {
			frames = append(frames, append(append(p.AppendHeaders(nil), p.Payload...),
				make([]byte, int(p.PadCnt)+wire.ICRCLen)...))
		}
	}
	for i := 0; i < len(frames); i++ {
		for _, h := range x.hosts {
			if x.taken == nil {
				h.q.resp.again = nil
			}
		}
		p := decode(x.t, frames[i])
		to.handle(x.now, p)
		alike := []byte{}
		for k := i + 1; x.taken != nil && k < len(frames) && wire.Alike(frames[k], frames[k-1]); k++ {
			alike = append(alike, frames[k]...)
		}
		if len(alike) > 0 {
			n := to.q.HandleAlike(x.now, alike, len(frames[i]), wire.NotECT)
			x.taken[taking{p.Opcode, to.q.State()}] += n
			i += n
		}
	}
	return list
}

// TestTrainsTooLong checks that a SEND longer than its receive, or a response longer than
// its READ, is refused in a train as in single packets.
func TestTrainsTooLong(t *testing.T) {
	const mtu, room, sent = 1024, 5, 12
	for _, c := range []struct {
		name          string
		first, middle wire.Opcode
	}{
		{"receive", wire.RCSendFirst, wire.RCSendMiddle},
		{"READ", wire.RCReadRespFirst, wire.RCReadRespMiddle},
	} {
		var got [2]string
		for way := range got {
			h := newHost(t, ourNum)
			h.up(ib.StateRTS, goodAttr(peerNum, ourPSN, peerPSN))
			psn := peerPSN
			if c.first == wire.RCReadRespFirst {
				h.post(&ib.SendWR{ID: 1, Opcode: ib.WRRead, SGL: []ib.SGE{h.sge(mtu, room*mtu)}, RemoteAddr: memAddr,
					RKey: 1})
				psn = h.emit(0, 8)[0].PSN
			} else {
				h.postRecv(&ib.RecvWR{ID: 1, SGL: []ib.SGE{h.sge(mtu, room*mtu)}})
			}
			var frames [][]byte
			for i := range sent {
				p := request(c.middle, psn.Add(i), bytes.Repeat([]byte{byte(i + 1)}, mtu))
				if i == 0 {
					p.Opcode = c.first
				}
				p.AETH = wire.AETH{Syndrome: wire.AckNoCredits}
				frames = append(frames, append(append(p.AppendHeaders(nil), p.Payload...), 0, 0, 0, 0))
			}
			for i := 0; i < sent; i++ {
				h.handle(1, decode(t, frames[i]))
				if way == 0 && i > 0 && i+1 < sent {
					i += h.q.HandleAlike(1, bytes.Join(frames[i+1:], nil), len(frames[i]), wire.NotECT)
				}
			}
			var wcs [4]ib.WC
			got[way] = fmt.Sprintf("%v, %+v, %v, %x", h.answers(1), wcs[:h.sendCQ.Poll(wcs[:])], h.q.State(),
				h.mem[:(sent+2)*mtu])
		}
		if got[0] != got[1] {
			t.Errorf("%s: %.300s\none by one: %.300s", c.name, got[0], got[1])
		}
		if bytes.Contains([]byte(got[0]), []byte("06060606")) {
			t.Errorf("%s: more was taken than there was room for", c.name)
		}
	}
}

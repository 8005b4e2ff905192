package qp

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/wire"
)

// TestMessageTrains: short WRITEs leave as the same packets in trains and one by one, and have the same records.
func TestMessageTrains(t *testing.T) {
	const seeds = 50
	t.Logf("seeds 0 to %d", seeds-1)
	alike, packets := 0, 0
	for seed := range uint64(seeds) {
		var got [2][]TxPacket
		var hosts [2]*host
		for i := range hosts {
			hosts[i], got[i] = sendShort(t, seed, i == 1)
		}
		if len(got[0]) != len(got[1]) {
			t.Fatalf("seed %d: %d packets, one by one %d", seed, len(got[0]), len(got[1]))
		}
		for i := range got[0] {
			p, want := &got[0][i], &got[1][i]
			if p.BTH != want.BTH || p.RETH != want.RETH || !bytes.Equal(data(t, p), data(t, want)) {
				t.Errorf("seed %d, packet %d: %+v %+v, one by one %+v %+v", seed, i, p.BTH, p.RETH, want.BTH, want.RETH)
			}
			packets++
			alike += min(p.Train, 1)
		}
		a, b := sentBy(hosts[0]), sentBy(hosts[1])
		for i := range min(len(a), len(b), 50) { // the latest
			if got, want := a[len(a)-1-i], b[len(b)-1-i]; got != want {
				t.Errorf("seed %d, record %d: %+v, one by one %+v", seed, i, got, want)
			}
		}
	}
	if alike < packets/2 {
		t.Errorf("%d of %d packets were followed by others of a train; the test wants more", alike, packets)
	}
}

// sentBy returns the records of packets that a host has sent, without their times.
func sentBy(h *host) (list []Record) {
	for _, r := range h.q.Recorder().Records() {
		if r.At = 0; r.Kind == RecordSent {
			list = append(list, r)
		}
	}
	return list
}

// sendShort posts WRITEs, most of which are like the one before, and returns their packets.
func sendShort(t *testing.T, seed uint64, oneByOne bool) (a *host, all []TxPacket) {
	rng := rand.New(rand.NewPCG(seed, 5))
	a, b := connected(t)
	a.q.cfg.Trains = true
	for i := range a.mem {
		a.mem[i] = byte(i * 7)
	}
	size, inline := 1+rng.IntN(64), ib.SendFlags(0)
	for range hostEntries {
		from := rng.IntN(1 << 16)
		wr := ib.SendWR{Opcode: ib.WRWrite, SGL: []ib.SGE{a.sge(from, size)}, RemoteAddr: memAddr + rng.Uint64N(1<<16),
			RKey: b.region.Key()}
		switch rng.IntN(60) {
		case 0:
			size = 1 + rng.IntN(64)
		case 1:
			inline ^= ib.SendInline
		case 2:
			wr.SGL = []ib.SGE{a.sge(from, size/2), a.sge(from+size/2, size-size/2)}
		case 3:
			wr.SGL = []ib.SGE{a.sge(from, rng.IntN(1024))}
		case 4:
			wr.RKey++
		case 5:
			wr.Opcode = ib.WRSend
		}
		if inline != 0 {
			n := min(int(wr.SGL[0].Length), 64)
			wr.SGL, wr.Inline, wr.Flags = nil, a.mem[from:][:n], inline
		}
		a.post(&wr)
	}
	for now, quiet := ib.Instant(0), 0; quiet < 2; now += 100 {
		batch := 1 + rng.IntN(64)
		if oneByOne {
			batch = 1
		}
		out := a.emit(now, batch)
		if quiet++; len(out) > 0 {
			quiet = 0
			a.handle(now, ack(out[len(out)-1].PSN, ib.PSN(len(all))))
		}
		all = append(all, out...)
	}
	return a, all
}

// TestPutTrain: the frames that PutTrain writes are the packets of the train.
func TestPutTrain(t *testing.T) {
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 6))
		a, b := connected(t)
		a.q.cfg.Trains = true
		size := []int{1 + rng.IntN(64), 20 << 10}[seed%2]
		for i := range 12 {
			a.mem[i*100+rng.IntN(50)]++
			wr := ib.SendWR{Opcode: ib.WRWrite, SGL: []ib.SGE{a.sge(i*100, size)}, RemoteAddr: memAddr,
				RKey: b.region.Key()}
			if seed%4 == 0 {
				wr.SGL, wr.Inline, wr.Flags = nil, a.mem[i*100:][:size], ib.SendInline
			}
			a.post(&wr)
		}
		var txs [64]TxPacket
		frames := 0
		for _, tx := range txs[:a.q.NextPackets(0, txs[:])] {
			size := tx.Opcode.HeaderLen() + tx.Len + tx.Pad() + wire.ICRCLen
			buf := bytes.Repeat([]byte{0xEE}, size*(1+tx.Train))
			copy(buf, tx.AppendHeaders(nil))
			if err := tx.PutTrain(buf, size); err != nil {
				t.Fatal(err)
			}
			for buf = buf[size:]; tx.Train > 0; buf = buf[size:] {
				tx.Advance(1)
				want := append(append(tx.AppendHeaders(nil), data(t, &tx)...), make([]byte, tx.Pad()+wire.ICRCLen)...)
				if !bytes.Equal(buf[:size], want) {
					t.Fatalf("seed %d: % x, want % x", seed, buf[:size], want)
				}
				frames++
			}
		}
		if frames < 10 {
			t.Errorf("seed %d: %d frames of trains, want more", seed, frames)
		}
	}
}

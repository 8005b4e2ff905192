package qp

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"unsafe"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/ib/driver"
	"github.com/goroce/goroce/mr"
	"github.com/goroce/goroce/mr/mrtest"
	"github.com/goroce/goroce/tests/require"
	"github.com/goroce/goroce/wire"
)

// slowPair is two connected QPs with slow memory on both sides, and the network
// between them. Reads and writes of memory end in any order; packets get lost.
type slowPair struct {
	t     testing.TB
	rng   *rand.Rand
	now   ib.Instant
	sides [2]*slowSide
	loss  float64
}

type slowSide struct {
	*host
	mem     *mrtest.Memory
	reg     *mr.Region
	fetches []Fetch
	late    mrtest.Queue
	done    int // completions
}

const slowSize = 1 << 20

func newSlowPair(t testing.TB, seed uint64, trains bool) *slowPair {
	p := &slowPair{t: t, rng: rand.New(rand.NewPCG(seed, 0))}
	a, b := connected(t)
	for i, h := range []*host{a, b} {
		s := &slowSide{host: h, mem: mrtest.New(slowSize)}
		for j := range s.mem.B {
			s.mem.B[j] = byte(p.rng.Uint32())
		}
		var err error
		s.reg, err = h.table.Register(h.pd, s.mem, 0x40000000, allAccess)
		h.must(err)
		h.q.cfg.Trains, h.q.cfg.Probe = trains, true
		h.setLate(64)
		p.sides[i] = s
	}
	return p
}

// sge returns an SGE of n bytes of slow memory.
func (s *slowSide) sge(off, n int) ib.SGE {
	return ib.SGE{Addr: s.reg.Addr() + uint64(off), Length: uint32(n), LKey: s.reg.Key()}
}

// step delivers a packet, ends fetches and placements, or advances to a deadline. It
// returns false if none of these is left.
func (p *slowPair) step() bool {
	busy := false
	for i, s := range p.sides {
		peer := p.sides[1-i]
		for _, tx := range p.emit(s) {
			busy = true
			if p.rng.Float64() < p.loss {
				continue
			}
			peer.handle(p.now, tx)
			peer.late.Add(peer.placements()...)
		}
		busy = p.work(s) || busy
	}
	if !busy {
		at := min(p.sides[0].q.Deadline(), p.sides[1].q.Deadline())
		if at == driver.Never {
			return false
		}
		p.now = max(p.now, at)
		for _, s := range p.sides {
			s.q.HandleTimeout(p.now)
		}
	}
	return true
}

// emit copies the packets that are sent now, and takes the fetches after that.
func (p *slowPair) emit(s *slowSide) (packets []wire.Packet) {
	var buf [16]TxPacket
	for _, tx := range buf[:s.q.NextPackets(p.now, buf[:])] {
		for train := tx.Train; train >= 0; train-- {
			packet := tx.Packet
			packet.Payload = make([]byte, tx.Len)
			if tx.SGL != nil {
				p.t.Fatal("slow memory is named in a packet")
			}
			copy(packet.Payload, tx.Inline)
			if tx.Len > len(tx.Inline) {
				p.t.Fatalf("%d bytes of payload, want at most the %d at hand", tx.Len, len(tx.Inline))
			}
			packets = append(packets, packet)
			if train > 0 {
				tx.Advance(1)
			}
		}
	}
	s.fetches = append(s.fetches, s.host.fetches()...)
	if n := len(s.fetches); n > int(numDirections)*numChunks {
		p.t.Fatalf("got %d fetches under way, want at most %d", n, int(numDirections)*numChunks)
	}
	return packets
}

// work ends some fetches, in any order, and some placements.
func (p *slowPair) work(s *slowSide) (busy bool) {
	busy = len(s.fetches)+s.late.Len() > 0
	for len(s.fetches) > 0 && p.rng.IntN(3) > 0 {
		i := p.rng.IntN(len(s.fetches))
		f := s.fetches[i]
		s.fetches = append(s.fetches[:i], s.fetches[i+1:]...)
		s.q.Fetched(p.now, f.ID, f.Do())
	}
	for s.late.Len() > 0 && p.rng.IntN(3) > 0 {
		id, old, _, err := s.late.Complete()
		s.q.Placed(p.now, id, old, err)
	}
	var wcs [8]ib.WC
	for _, wc := range wcs[:s.sendCQ.Poll(wcs[:])] {
		if wc.Status != ib.WCSuccess {
			p.t.Fatal(wc.Err())
		}
		s.done++
	}
	return busy
}

// TestSlowModel checks that WRITEs and READs between slow memories move the right bytes,
// with and without trains, in any order of fetches and placements, with any losses, and with much or little staging
// memory.
func TestSlowModel(t *testing.T) {
	for seed := range uint64(require.Rounds(12, 60)) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			p := newSlowPair(t, seed, seed%2 == 0)
			p.loss = []float64{0, 0.01, 0.05}[seed%3]
			a, b := p.sides[0], p.sides[1]
			for i, s := range p.sides {
				if seed%4 >= 2 || i == int(seed%4) {
					s.setLate(2 * leastLate)
					s.q.cfg.Limits.Stage = func(*QP) bool { return false }
				}
			}
			want := [2][]byte{bytes.Clone(a.mem.B), bytes.Clone(b.mem.B)}
			const ops, zone = 12, slowSize / 2 / 12
			for i := range ops {
				n := 1 + p.rng.IntN(zone)
				if p.rng.IntN(2) == 0 {
					n = 1 + p.rng.IntN(3000)
				}
				from, to := p.rng.IntN(slowSize/2-n), slowSize/2+i*zone
				wr := ib.SendWR{ID: uint64(i), Flags: ib.SendSignaled, RKey: b.reg.Key()}
				if p.rng.IntN(2) == 0 {
					wr.Opcode, wr.RemoteAddr = ib.WRWrite, b.reg.Addr()+uint64(to)
					wr.SGL = []ib.SGE{a.sge(from, n/2), a.sge(from+n/2, n-n/2)}
					copy(want[1][to:], want[0][from:][:n])
				} else {
					wr.Opcode, wr.RemoteAddr = ib.WRRead, b.reg.Addr()+uint64(from)
					wr.SGL = []ib.SGE{a.sge(to, n)}
					copy(want[0][to:], want[1][from:][:n])
				}
				a.post(&wr)
			}
			for a.done < ops && p.step() {
			}
			if a.done != ops {
				t.Fatalf("got %d requests complete, want %d", a.done, ops)
			}
			for i, s := range p.sides {
				if !bytes.Equal(s.mem.B, want[i]) {
					t.Errorf("memory of side %d differs", i)
				}
				if got, most := s.stagedBytes(), LeastLateBytes(); !s.q.staged() && got > most {
					t.Errorf("side %d has %d bytes of staging memory, want at most %d", i, got, most)
				}
			}
		})
	}
}

// TestSlowGivesBack checks that staging memory exists from the first fetch to RESET, and
// that a fetch which ends after RESET changes nothing, even if the QP is in use again.
func TestSlowGivesBack(t *testing.T) {
	p := newSlowPair(t, 1, false)
	a := p.sides[0]
	a.post(&ib.SendWR{ID: 1, Opcode: ib.WRSend, SGL: []ib.SGE{a.host.sge(0, 8)}})
	a.q.NextPackets(p.now, make([]TxPacket, 1))
	if a.q.fetch != nil {
		t.Fatal("direct memory was staged")
	}
	post := func() {
		a.post(&ib.SendWR{ID: 2, Opcode: ib.WRSend, SGL: []ib.SGE{a.sge(0, 100)}})
		p.emit(a)
	}
	post()
	old := a.fetches[0]
	a.must(a.modify(ib.StateReset, ib.QPAttr{}, 0))
	for _, c := range a.q.fetch.chunks[requests] {
		if c.buf != nil {
			t.Fatal("a QP in RESET keeps staging memory")
		}
	}
	a.up(ib.StateRTS, goodAttr(peerNum, ourPSN, peerPSN))
	a.fetches = nil
	post()
	if &a.fetches[0].Buf[0] == &old.Buf[0] {
		t.Fatal("memory of a fetch under way is in use again")
	}
	for _, err := range []error{nil, errors.New("gone")} {
		a.q.Fetched(p.now, old.ID, err)
		if sent := p.emit(a); len(sent) > 0 || a.q.State() != ib.StateRTS {
			t.Fatalf("an answer from before RESET: got %d packets in %v, want none in RTS", len(sent), a.q.State())
		}
	}
}

// TestFetchedUnknown checks that Fetched ignores unknown IDs.
func TestFetchedUnknown(t *testing.T) {
	p := newSlowPair(t, 1, false)
	a := p.sides[0]
	for range 2 {
		for id := range uint64(1 << 10) {
			a.q.Fetched(0, id|p.rng.Uint64()<<10, nil)
		}
		a.post(&ib.SendWR{ID: 1, Opcode: ib.WRSend, SGL: []ib.SGE{a.sge(0, 100)}})
		if len(p.emit(a)) > 0 {
			t.Fatal("sent before it was fetched")
		}
	}
}

// TestFetchOfFlushed checks that the buffer of an unfinished fetch is not used for another
// fetch, even if the request of the first has ended.
func TestFetchOfFlushed(t *testing.T) {
	a, _ := connectedBy(t, ib.UC, false)
	post := func(ids ...uint64) (fetches []Fetch) {
		for _, id := range ids {
			a.post(&ib.SendWR{ID: id, Opcode: ib.WRSend, SGL: []ib.SGE{{Addr: slowAddr, Length: 100,
				LKey: a.slowReg.Key()}}})
		}
		a.q.NextPackets(0, make([]TxPacket, 8))
		return append(fetches, a.fetches()...)
	}
	before := post(1, 2, 3)
	a.q.Fetched(0, before[0].ID, errors.New("gone"))
	if a.q.State() != ib.StateSQE {
		t.Fatal(a.q.State())
	}
	a.must(a.modify(ib.StateRTS, ib.QPAttr{}, 0))
	for _, f := range post(4, 5, 6) {
		if &f.Buf[0] == &before[1].Buf[0] || &f.Buf[0] == &before[2].Buf[0] {
			t.Fatal("two fetches are of one buffer")
		}
	}
	a.effects()
	a.q.Fetched(0, before[1].ID, nil)
	if !a.effects() {
		t.Error("a buffer is free again, and the QP that waits for one does not ask to send")
	}
}

// TestFetchOfOldREAD checks that chunks fetched for a READ are not used for another READ
// with the same first PSN, after PSNs have wrapped.
func TestFetchOfOldREAD(t *testing.T) {
	h, _ := connected(t)
	for round := range 2 {
		for i := range ib.PSN(5) { // there are resources for four
			p := request(wire.RCReadRequest, peerPSN+i, nil)
			p.RETH = wire.RETH{VA: memAddr, RKey: h.region.Key(), Len: 8}
			if i == 0 {
				p.RETH = wire.RETH{VA: slowAddr, RKey: h.slowReg.Key(), Len: 8}
			}
			h.handle(0, p)
			h.q.NextPackets(0, make([]TxPacket, 8))
			for _, f := range h.fetches() {
				h.q.Fetched(0, f.ID, f.Do())
			}
			h.q.NextPackets(0, make([]TxPacket, 8))
		}
		if h.slow.Reads != round+1 {
			t.Fatalf("got %d reads of memory in %d rounds, want one in each", h.slow.Reads, round+1)
		}
		h.q.resp.epsn = peerPSN
	}
}

// setLate changes the number of placements that the QP may have under way, before it has any.
func (h *host) setLate(n int) { h.q.cfg.MaxLate, h.q.late.limit = n, n }

// stagedBytes returns the bytes of the QP's tables and chunks for memory that is not direct.
func (h *host) stagedBytes() int64 {
	q := h.q
	n := len(q.resp.commits.ring)*int(unsafe.Sizeof(commit{})) + cap(q.late.list)*int(unsafe.Sizeof(mr.Placement{})) +
		len(q.late.owners)*int(unsafe.Sizeof(lateOwner{}))
	if q.fetch != nil {
		n += int(unsafe.Sizeof(*q.fetch))
		for d := range q.fetch.chunks {
			for i := range q.fetch.chunks[d] {
				n += cap(q.fetch.chunks[d][i].buf)
			}
		}
	}
	return int64(n)
}

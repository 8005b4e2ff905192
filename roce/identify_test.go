package roce

import (
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/link"
	"github.com/goroce/goroce/wire"
)

// sender makes frames as a host with some rule for the identification does.
type sender struct {
	outer wire.Outer
	psn   ib.PSN
}

func newSender(addr string) *sender {
	return &sender{outer: wire.Outer{Src: ib.GIDFromAddr(netip.MustParseAddr(addr)),
		Dst: ib.GIDFromAddr(netip.MustParseAddr("192.0.2.9")), SrcPort: 0xC123, DstPort: link.Port}}
}

// frame returns a SEND of n bytes that was sealed with an identification, as a
// socket delivers it: without.
func (s *sender) frame(id uint16, n int) link.Run {
	p := wire.Packet{BTH: wire.BTH{Opcode: wire.RCSendOnly, PKey: ib.DefaultPKey, DestQP: 17, PSN: s.psn}}
	s.psn++
	b := append(p.AppendHeaders(nil), make([]byte, n+wire.ICRCLen)...)
	s.outer.ID = id
	s.outer.Seal(b)
	return link.Run{Src: s.outer.Src, Dst: s.outer.Dst, SrcPort: s.outer.SrcPort, Size: len(b), Buf: b}
}

func accepts(t *identifier, now ib.Instant, r link.Run) bool {
	o := wire.Outer{Src: r.Src, Dst: r.Dst, SrcPort: r.SrcPort, DstPort: link.Port}
	return t.check(now, t.source(&r), &o, &r, 0, r.Frame(0))
}

// TestIdentificationRules follows the identifications that hosts really use.
func TestIdentificationRules(t *testing.T) {
	const ms = nsPerMilli
	for _, c := range []struct {
		name string
		ids  []uint16
		at   ib.Instant // between frames
		want []bool
	}{
		{"always 0", []uint16{0, 0, 0}, ms, []bool{true, true, true}},
		{"place in a run", []uint16{0, 1, 2, 61, 0, 63}, 0, []bool{true, true, true, true, true, true}},
		{"counter", []uint16{40000, 40001, 40002}, 0, []bool{true, true, true}},
		{"counter that wraps", []uint16{65534, 65535, 0, 1}, 0, []bool{true, true, true, true}},
		{"counter, frames lost", []uint16{40000, 40030, 40031}, 0, []bool{true, true, true}},
		{"counter, frames out of order", []uint16{40000, 40002, 40001, 40003}, 0, []bool{true, true, true, true}},
		{"counter, overtaken by the frames of another processor", []uint16{40000, 40064, 40128, 40001, 40129}, 0, []bool{true, true, true, true, true}},
		{"counter after idle milliseconds", []uint16{40000, 40500, 40501}, 600 * ms, []bool{true, true, true}},
		{"counter that jumps", []uint16{40000, 50000, 50001, 50002}, 0, []bool{true, false, true, true}},
		{"one stray value", []uint16{40000, 50000, 40001, 40002}, 0, []bool{true, false, true, true}},
	} {
		var id identifier
		s, now := newSender("192.0.2.1"), ib.Instant(0)
		for i, v := range c.ids {
			if got := accepts(&id, now, s.frame(v, 100)); got != c.want[i] {
				t.Errorf("%s: frame %d with identification %d: accepted %v, want %v", c.name, i, v, got, c.want[i])
			}
			now += c.at
		}
	}
}

// TestIdentificationCorruption flips bits in frames of a known sender: with the
// identification unknown the check still lets next to nothing through.
func TestIdentificationCorruption(t *testing.T) {
	const seed = 11
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	var id identifier
	s := newSender("192.0.2.1")
	counter := uint16(30000)
	accepted, flips := 0, 20_000
	for range flips {
		r := s.frame(counter, 64)
		if !accepts(&id, 0, r) {
			t.Fatalf("a good frame with identification %d was refused", counter)
		}
		counter++
		r = s.frame(counter, 64)
		for range 1 + rng.IntN(3) { // up to three bits
			bit := rng.IntN(len(r.Buf) * 8)
			if bit/8 == 4 {
				continue // byte 4 of the BTH is not covered
			}
			r.Buf[bit/8] ^= 1 << (bit % 8)
		}
		o := wire.Outer{Src: r.Src, Dst: r.Dst, SrcPort: r.SrcPort, DstPort: link.Port, ID: counter}
		if !o.Check(r.Buf) && accepts(&id, 0, r) {
			accepted++
		}
		counter++
	}
	if accepted > 0 {
		t.Errorf("%d of %d corrupt frames were accepted", accepted, flips)
	}
}

// TestQPNumbers: a number is not used again for long, leads to its QP, and names its
// shard.
func TestQPNumbers(t *testing.T) {
	for _, shards := range []int{1, 2, 4, link.MaxShards} {
		for shard := range shards {
			testQPNumbers(t, newQPNTable(250, shard, shards), shard, shards)
		}
	}
}

func testQPNumbers(t *testing.T, table *qpnTable, shard, shards int) {
	seen := map[ib.QPN]bool{}
	var live []*QP
	for range 3 {
		for range 1000 {
			if !table.room() {
				t.Fatal("no number is left")
			}
			q := &QP{}
			q.num = table.add(q)
			if seen[q.num] || q.num < firstQPN || q.num >= ib.QPNMulticast || link.ShardOf(q.num, shards) != shard {
				t.Fatalf("shard %d of %d: number %#x is used again or not allowed", shard, shards, uint32(q.num))
			}
			seen[q.num] = true
			if table.get(q.num) != q {
				t.Fatalf("number %#x does not lead to its QP", uint32(q.num))
			}
			live = append(live, q)
		}
		for _, q := range live {
			table.remove(q.num)
			if table.get(q.num) != nil {
				t.Fatalf("number %#x still leads to a QP", uint32(q.num))
			}
		}
		live = live[:0]
	}
	n := 0
	for ; table.room(); n++ {
		table.add(&QP{})
	}
	if n != maxQPs/shards {
		t.Errorf("shard %d of %d has %d numbers, want %d", shard, shards, n, maxQPs/shards)
	}
}

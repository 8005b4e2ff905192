package ipid

import (
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/link"
	"github.com/goroce/goroce/wire"
)

// sender makes frames as a host with a given rule for the identification does.
type sender struct {
	outer wire.Outer
	psn   ib.PSN
}

func newSender(addr string) *sender {
	return &sender{outer: wire.Outer{Src: ib.GIDFromAddr(netip.MustParseAddr(addr)),
		Dst: ib.GIDFromAddr(netip.MustParseAddr("192.0.2.9")), SrcPort: 0xC123, DstPort: link.Port}}
}

// frame returns a SEND of n bytes whose ICRC was computed with an identification. As a socket
// delivers it, the frame does not contain the identification.
func (s *sender) frame(id uint16, n int) link.Run {
	p := wire.Packet{BTH: wire.BTH{Opcode: wire.RCSendOnly, PKey: ib.DefaultPKey, DestQP: 17, PSN: s.psn}}
	s.psn++
	b := append(p.AppendHeaders(nil), make([]byte, n+wire.ICRCLen)...)
	s.outer.ID = id
	s.outer.Seal(b)
	return link.Run{Src: s.outer.Src, Dst: s.outer.Dst, SrcPort: s.outer.SrcPort, Size: len(b), Buf: b}
}

func accepts(t *Tracker, now ib.Instant, r link.Run) bool {
	o := wire.Outer{Src: r.Src, Dst: r.Dst, SrcPort: r.SrcPort, DstPort: link.Port}
	return t.Check(now, t.Source(&r), &o, &r, 0, r.Frame(0))
}

// TestIdentificationRules: the tracker accepts the identifications that real hosts use.
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
		{"counter, overtaken by the frames of another processor", []uint16{40000, 40064, 40128, 40001, 40129}, 0,
			[]bool{true, true, true, true, true}},
		{"counter after idle milliseconds", []uint16{40000, 40500, 40501}, 600 * ms, []bool{true, true, true}},
		{"counter that jumps", []uint16{40000, 50000, 50001, 50002}, 0, []bool{true, false, true, true}},
		{"one stray value", []uint16{40000, 50000, 40001, 40002}, 0, []bool{true, false, true, true}},
	} {
		var id Tracker
		s, now := newSender("192.0.2.1"), ib.Instant(0)
		for i, v := range c.ids {
			if got := accepts(&id, now, s.frame(v, 100)); got != c.want[i] {
				t.Errorf("%s: frame %d with identification %d: accepted %v, want %v", c.name, i, v, got, c.want[i])
			}
			now += c.at
		}
	}
}

// TestIdentificationCorruption flips bits in frames of a known sender: although the
// identification is unknown, the check accepts almost none of them.
func TestIdentificationCorruption(t *testing.T) {
	const seed = 11
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	var id Tracker
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
		t.Errorf("got %d of %d corrupt frames accepted, want none", accepted, flips)
	}
}

// TestCounterOverShards: a source has one counter for the packets of all QPs, so each shard sees
// gaps as long as the number of packets that the other shards received.
func TestCounterOverShards(t *testing.T) {
	var shards [2]Tracker
	Share([]*Tracker{&shards[0], &shards[1]})
	s, counter := newSender("192.0.2.1"), uint16(40000)
	for round := range 20 {
		for range 500 {
			if !accepts(&shards[round%2], 0, s.frame(counter, 8)) {
				t.Fatalf("round %d: identification %d refused", round, counter)
			}
			counter++
		}
	}
	if accepts(&shards[0], 0, s.frame(counter+5000, 8)) {
		t.Error("any identification is good")
	}
}

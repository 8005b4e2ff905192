package wire

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"github.com/goroce/goroce/ib"
)

// bitwiseICRC computes the ICRC of an IP packet, ICRC excluded, one bit at a time
// from the packet's own bytes: the specification's definition and nothing else.
func bitwiseICRC(ip []byte) uint32 {
	b := append(bytes.Repeat([]byte{0xFF}, 8), ip...)
	p := b[8:]
	udp := p[40:]
	if p[0]>>4 == 4 {
		p[1], p[8], p[10], p[11] = 0xFF, 0xFF, 0xFF, 0xFF
		udp = p[20:]
	} else {
		p[0], p[1], p[2], p[3], p[7] = p[0]|0x0F, 0xFF, 0xFF, 0xFF, 0xFF
	}
	udp[6], udp[7] = 0xFF, 0xFF
	udp[8+4] = 0xFF
	crc := ^uint32(0)
	for _, c := range b {
		for bit := range 8 {
			out := crc&1 ^ uint32(c>>bit&1)
			crc >>= 1
			if out != 0 {
				crc ^= 0xEDB88320
			}
		}
	}
	return ^crc
}

// randomOuter returns outer headers with every field at random.
func randomOuter(r *rand.Rand, v4 bool) Outer {
	o := Outer{
		SrcPort: uint16(r.Uint32()), DstPort: Port, TrafficClass: uint8(r.Uint32()), HopLimit: uint8(r.Uint32()),
	}
	if v4 {
		o.Src, o.Dst = mapped([4]byte{byte(r.Uint32()), 1, 2, 3}), mapped([4]byte{10, byte(r.Uint32()), 0, 9})
		o.ID, o.NoDF = uint16(r.Uint32()), r.Uint32()&1 == 0
		return o
	}
	o.FlowLabel = r.Uint32() & 0xFFFFF
	for i := range o.Src {
		o.Src[i], o.Dst[i] = byte(r.Uint32()), byte(r.Uint32())
	}
	o.Src[0], o.Dst[0] = 0xFD, 0xFD
	return o
}

// randomFrame returns n bytes, BTH to ICRC, without sense.
func randomFrame(r *rand.Rand, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

// newRand returns a random source and logs its seed.
func newRand(t testing.TB) *rand.Rand {
	seed := rand.Uint64()
	t.Logf("seed %#x", seed)
	return rand.New(rand.NewPCG(seed, 0))
}

// Seal agrees with the bitwise CRC for all headers and lengths.
func TestICRCAgainstBitwise(t *testing.T) {
	r := newRand(t)
	for i := range 400 {
		o := randomOuter(r, i%2 == 0)
		frame := randomFrame(r, BTHLen+ICRCLen+i+r.IntN(2)*2048)
		o.Seal(frame)
		whole := append(o.AppendHeaders(nil, len(frame)), frame...)
		want := bitwiseICRC(whole[:len(whole)-ICRCLen])
		if got := binary.LittleEndian.Uint32(frame[len(frame)-ICRCLen:]); got != want {
			t.Fatalf("%+v, %d bytes: ICRC %#08x, want %#08x", o, len(frame), got, want)
		}
		if !o.Check(frame) {
			t.Fatalf("%+v, %d bytes: Check refuses what Seal made", o, len(frame))
		}
	}
}

// The captures have the ICRC that the bitwise CRC says, so it is a fair judge.
func TestBitwiseAgainstCaptures(t *testing.T) {
	for _, b := range sampleFrames(t) {
		ip := b[EtherLen:]
		n := len(ip) - ICRCLen
		if got, want := binary.LittleEndian.Uint32(ip[n:]), bitwiseICRC(bytes.Clone(ip[:n])); got != want {
			t.Errorf("ICRC %#08x, want %#08x: % x", got, want, ip)
		}
	}
}

// What routers may change is masked, what they may not is covered.
func TestICRCMasks(t *testing.T) {
	r := newRand(t)
	for _, v4 := range []bool{true, false} {
		o := randomOuter(r, v4)
		frame := randomFrame(r, 64)
		o.Seal(frame)
		for _, tc := range []struct {
			name    string
			change  func(*Outer)
			covered bool
		}{
			{"traffic class", func(o *Outer) { o.TrafficClass++ }, false},
			{"hop limit", func(o *Outer) { o.HopLimit-- }, false},
			{"flow label", func(o *Outer) { o.FlowLabel ^= 1 }, false},
			{"source port", func(o *Outer) { o.SrcPort ^= 1 }, true},
			{"destination port", func(o *Outer) { o.DstPort ^= 1 }, true},
			{"source", func(o *Outer) { o.Src[15] ^= 1 }, true},
			{"destination", func(o *Outer) { o.Dst[15] ^= 1 }, true},
			{"identification", func(o *Outer) { o.ID ^= 1 }, v4},
			{"don't fragment", func(o *Outer) { o.NoDF = !o.NoDF }, v4},
		} {
			changed := o
			tc.change(&changed)
			if changed.Check(frame) == tc.covered {
				t.Errorf("IPv4 %v: %s: covered is %v, want %v", v4, tc.name, !tc.covered, tc.covered)
			}
		}
	}
}

func TestCheckShortFrames(t *testing.T) {
	var o Outer
	for n := range BTHLen + ICRCLen {
		if o.Check(make([]byte, n)) {
			t.Errorf("%d bytes pass", n)
		}
		if _, ok := o.SolveID(make([]byte, n)); ok {
			t.Errorf("%d bytes have a solution", n)
		}
	}
}

// Congestion marks change on the way and do not break the ICRC.
func TestICRCIgnoresCongestionMarks(t *testing.T) {
	o := Outer{Src: ib.GID{0xFD, 15: 1}, Dst: ib.GID{0xFD, 15: 2}, DstPort: Port}
	frame := make([]byte, 32)
	o.Seal(frame)
	frame[4] = 0xFF
	if !o.Check(frame) {
		t.Error("FECN, BECN and reserved bits are covered")
	}
}

// TestRun: SealRun and CheckRun do what Seal and Check do frame by frame, at all lengths of frames and runs.
func TestRun(t *testing.T) {
	r := newRand(t)
	for size := BTHLen + ICRCLen; size < 120; size += 4 {
		for frames := range 11 {
			o := randomOuter(r, frames%2 == 0)
			prefix, id, step := o.Prefix(size), uint16(r.Uint32()), uint16(r.IntN(2))
			buf := randomFrame(r, frames*size)
			prefix.SealRun(id, step, buf, size)
			for i := range frames {
				if !prefix.Check(id+uint16(i)*step, buf[i*size:][:size]) {
					t.Fatalf("%d frames of %d bytes: frame %d has a wrong ICRC", frames, size, i)
				}
			}
			prefix.SealRun(id, 1, buf, size)
			if got := prefix.CheckRun(id, buf, size); got != frames {
				t.Fatalf("%d of %d frames of %d bytes are right", got, frames, size)
			}
			for i := range frames {
				at := i*size + r.IntN(size)
				if at%size == 4 {
					at++
				}
				buf[at] ^= 1
				if got := prefix.CheckRun(id, buf, size); got != i {
					t.Fatalf("%d frames of %d bytes are right before frame %d, which is not", got, size, i)
				}
				buf[at] ^= 1
			}
		}
	}
}

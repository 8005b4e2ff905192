package wire

import (
	"bytes"
	"encoding/binary"
	"testing"

	"pgregory.net/rapid"
)

// SolveID finds the identification of every captured IPv4 packet from any guess.
func TestSolveIDCaptures(t *testing.T) {
	for _, dir := range captureDirs() {
		solved := 0
		for _, path := range captures(t, dir) {
			for i, b := range readCapture(t, path) {
				f, _ := mustDecode(t, b)
				if !f.Outer.Src.Is4() {
					continue
				}
				for _, guess := range []uint16{0, f.Outer.ID, f.Outer.ID - 1, 0xFFFF} {
					o := f.Outer
					o.ID = guess
					if id, ok := o.SolveID(f.Transport); !ok || id != f.Outer.ID {
						t.Errorf("%s frame %d, guess %d: %d, %v; want %d", path, i+1, guess, id, ok, f.Outer.ID)
					}
				}
				solved++
			}
		}
		t.Logf("%s: %d packets", dir, solved)
	}
}

// A flipped bit is not taken for another identification, in frames of all sizes
// that the captures have.
func TestSolveIDRefusesOneBitErrors(t *testing.T) {
	flips, passed := 0, 0
	for _, b := range sampleFrames(t) {
		f, p := mustDecode(t, b)
		if !f.Outer.Src.Is4() {
			continue
		}
		o := f.Outer
		o.ID = 0
		bad := bytes.Clone(f.Transport)
		for bit := range len(bad) * 8 {
			if bit/8 == 4 {
				continue // masked
			}
			bad[bit/8] ^= 1 << (bit % 8)
			if id, ok := o.SolveID(bad); ok {
				passed++
				t.Errorf("%v, bit %d: passes as identification %d, want none", p.Opcode, bit, id)
			}
			bad[bit/8] = f.Transport[bit/8]
			flips++
		}
	}
	t.Logf("%d of %d one-bit errors pass", passed, flips)
}

// The sixteen powers that an identification has are solved for, and no other.
func TestSolveIDImage(t *testing.T) {
	r := newRand(t)
	o := randomOuter(r, true)
	frame := randomFrame(r, 64)
	for k := range 32 {
		o.Seal(frame)
		icrc := frame[len(frame)-ICRCLen:]
		diff := multiply(1<<k, shiftOn.at(len(frame)+idDistance))
		binary.LittleEndian.PutUint32(icrc, binary.LittleEndian.Uint32(icrc)^diff)
		if id, ok := o.SolveID(frame); ok != (k >= 16) || ok && id != o.ID^polyID(1<<k) {
			t.Errorf("x^%d: %d, %v; want %d only from x^15 down", 31-k, id, ok, o.ID^polyID(1<<k))
		}
	}
}

// Of packets with random damage, one in 65,536 passes.
func TestSolveIDFalseAccepts(t *testing.T) {
	r := newRand(t)
	o := randomOuter(r, true)
	frame := randomFrame(r, 64)
	const n = 1 << 20
	passed := 0
	for range n {
		binary.LittleEndian.PutUint32(frame[len(frame)-ICRCLen:], r.Uint32())
		if _, ok := o.SolveID(frame); ok {
			passed++
		}
	}
	// Binomial with mean 16 and deviation 4.
	if passed > 16+8*4 {
		t.Errorf("%d of %d random ICRCs pass, want about 16", passed, n)
	}
	t.Logf("%d of %d random ICRCs pass", passed, n)
}

func TestSolveIDRefusesIPv6AndGiants(t *testing.T) {
	r := newRand(t)
	o := randomOuter(r, false)
	frame := randomFrame(r, 64)
	o.Seal(frame)
	if _, ok := o.SolveID(frame); ok {
		t.Error("an IPv6 packet has an identification")
	}
	o = randomOuter(r, true)
	if _, ok := o.SolveID(make([]byte, 2*maxUDPPayload)); ok {
		t.Error("a frame that no IPv4 packet can hold has an identification")
	}
}

// Reseal does what Seal does with the new identification, and SolveID finds it,
// whatever the length of the frame.
func TestReseal(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		seed := rapid.Uint64().Draw(t, "seed")
		size := rapid.OneOf(rapid.IntRange(BTHLen+ICRCLen, 300), rapid.IntRange(300, maxUDPPayload)).Draw(t, "size")
		oldID, newID := rapid.Uint16().Draw(t, "old"), rapid.Uint16().Draw(t, "new")
		o := Outer{Src: mapped([4]byte{10, 0, 0, 1}), Dst: mapped([4]byte{10, 0, 0, 2}), SrcPort: uint16(seed),
			DstPort: Port, ID: oldID}
		frame := make([]byte, size)
		for i := range frame {
			frame[i] = byte(seed >> (i % 57))
		}
		o.Seal(frame)
		Reseal(frame, oldID, newID)
		if id, ok := o.SolveID(frame); !ok || id != newID {
			t.Fatalf("SolveID: %d, %v; want %d", id, ok, newID)
		}
		o.ID = newID
		want := bytes.Clone(frame)
		o.Seal(want)
		if !bytes.Equal(frame, want) {
			t.Fatalf("ICRC % x, want % x", frame[size-4:], want[size-4:])
		}
	})
}

// The field arithmetic against its own laws.
func TestMultiply(t *testing.T) {
	r := newRand(t)
	for range 1000 {
		a, b, c := r.Uint32(), r.Uint32(), r.Uint32()
		if multiply(a, polyOne) != a || multiply(a, b) != multiply(b, a) ||
			multiply(a, b^c) != multiply(a, b)^multiply(a, c) ||
			multiply(multiply(a, b), c) != multiply(a, multiply(b, c)) {
			t.Fatalf("a %#x, b %#x, c %#x", a, b, c)
		}
		n := r.IntN(1 << 16)
		if multiply(shiftOn.at(n), shiftBack.at(n)) != polyOne {
			t.Fatalf("x^%d and its inverse do not make 1", 8*n)
		}
	}
	for id := range 1 << 16 {
		if polyID(idPoly(uint16(id))) != uint16(id) || idPoly(uint16(id))&0xFFFF != 0 {
			t.Fatalf("identification becomes %#x, want %#x and none of its bits", idPoly(uint16(id)), id)
		}
	}
}

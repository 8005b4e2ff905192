package wire

import (
	"bytes"
	"encoding/binary"
	"reflect"
	"testing"
)

// What decodes encodes to the same bytes, but for pad, which need not be zero.
func FuzzPacketDecode(f *testing.F) {
	for _, b := range sampleFrames(f) {
		frame, _ := mustDecode(f, b)
		f.Add(frame.Transport[:len(frame.Transport)-ICRCLen])
	}
	for _, row := range opcodeRows {
		b := make([]byte, row.len+goodPayload(row.op))
		b[0] = byte(row.op)
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		var p Packet
		if p.Decode(in) != nil {
			return
		}
		out := append(p.AppendHeaders(nil), p.Payload...)
		out = append(out, in[len(in)-int(p.PadCnt):]...)
		if !bytes.Equal(in, out) {
			t.Errorf("\n got % x\nwant % x", out, in)
		}
	})
}

// The same for whole frames, whose UDP checksum and trailer AppendHeaders does
// not write; and SolveID agrees with Check.
func FuzzFrameDecode(f *testing.F) {
	for _, b := range sampleFrames(f) {
		f.Add(b)
		f.Add(withVLAN(f, b, 7))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		var frame Frame
		if frame.Decode(in) != nil {
			return
		}
		out := append(frame.AppendHeaders(nil, len(frame.Transport)), frame.Transport...)
		udp := len(out) - len(frame.Transport) - UDPLen
		copy(out[udp+6:udp+8], in[udp+6:])
		if frame.Outer.Src.Is4() && binary.BigEndian.Uint16(in[udp-10:]) == 0xFFFF {
			// One's complement has two zeros, and a header checksum of 0 may be
			// written as either.
			copy(out[udp-10:udp-8], in[udp-10:])
		}
		if !bytes.Equal(in[:len(out)], out) {
			t.Errorf("\n got % x\nwant % x", out, in[:len(out)])
		}
		o := frame.Outer
		if id, ok := o.SolveID(frame.Transport); o.Src.Is4() && o.Check(frame.Transport) && (!ok || id != o.ID) {
			t.Errorf("ICRC is right, but SolveID says %d, %v; want %d", id, ok, o.ID)
		}
	})
}

// Whatever message a MAD is taken for, what decodes from it is put such that the
// same decodes again.
func FuzzCM(f *testing.F) {
	for _, mad := range madsOf(f, rpingPath) {
		f.Add(mad[:])
	}
	f.Add(bytes.Repeat([]byte{0xFF}, MADLen))
	f.Fuzz(func(t *testing.T, in []byte) {
		var mad [MADLen]byte
		copy(mad[:], in)
		var h, again MADHeader
		h.Decode(&mad)
		for a, m := range cmMessages() {
			m.Decode(&mad)
			out := put(&h, m)
			if again.Decode(&out); again != h {
				t.Errorf("put and decoded: %+v, want %+v", again, h)
			}
			m2 := cmMessages()[a]
			m2.Decode(&out)
			if !reflect.DeepEqual(m, m2) {
				t.Errorf("%v, put and decoded: %+v, want %+v", a, m2, m)
			}
		}
	})
}

// What decodes as header of rdma_cm is put such that the same decodes again.
func FuzzCMHeader(f *testing.F) {
	for _, mad := range madsOf(f, rpingPath) {
		f.Add(mad[MADHeaderLen+reqPrivate:])
	}
	f.Add(append([]byte{0, 0x60}, make([]byte, CMHeaderLen)...))
	f.Fuzz(func(t *testing.T, in []byte) {
		var h, again CMHeader
		if h.Decode(in) != nil {
			return
		}
		var out [CMHeaderLen]byte
		h.Put(out[:])
		if err := again.Decode(out[:]); err != nil || again != h {
			t.Errorf("put and decoded: %+v, %v; want %+v", again, err, h)
		}
	})
}

package wire

import (
	"bytes"
	"encoding/binary"
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
			t.Errorf("\n in % x\nout % x", in, out)
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
			t.Errorf("\n in % x\nout % x", in, out)
		}
		o := frame.Outer
		if id, ok := o.SolveID(frame.Transport); o.Src.Is4() && o.Check(frame.Transport) && (!ok || id != o.ID) {
			t.Errorf("ICRC is right, but SolveID says %d, %v", id, ok)
		}
	})
}

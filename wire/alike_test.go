package wire

import (
	"bytes"
	"testing"

	"github.com/goroce/goroce/ib"
)

// TestPutAlike: the headers are those that PutHeaders writes.
func TestPutAlike(t *testing.T) {
	p := Packet{BTH: BTH{Opcode: RCWriteOnly, PadCnt: 3, PKey: ib.DefaultPKey, DestQP: 0x123456, PSN: ib.PSNMask,
		AckReq: true}, RETH: RETH{VA: 0xFFFF_FFFF_FFFF_FC00, RKey: 0x89ABCDEF, Len: 1021}}
	before := p.AppendHeaders(nil)
	p.AckReq, p.PSN, p.RETH.VA = false, p.PSN.Add(1), p.RETH.VA+1021
	want := p.AppendHeaders(nil)
	got := bytes.Repeat([]byte{0xEE}, len(want)+4)
	PutAlike(got, before, p.PSN, p.RETH.VA, false)
	if n := len(want); n != AlikeLen(p.Opcode) || !bytes.Equal(got[:n], want) || got[n] != 0xEE {
		t.Errorf("% x, want % x", got, want)
	}
}

// TestAlike: what PutAlike writes is alike, and nothing else is.
func TestAlike(t *testing.T) {
	for _, op := range []Opcode{RCWriteOnly, RCSendMiddle, RCReadRespMiddle} {
		p := Packet{BTH: BTH{Opcode: op, PKey: ib.DefaultPKey, DestQP: 0x123456, PSN: ib.PSNMask, AckReq: true},
			RETH: RETH{VA: 0x10000, RKey: 0x89ABCDEF, Len: 64}}
		before := append(p.AppendHeaders(nil), make([]byte, 64+ICRCLen)...)
		frame := bytes.Repeat([]byte{0xEE}, len(before))
		PutAlike(frame, before, p.PSN.Add(1), 0x20000, false)
		if !Alike(frame, before) {
			t.Errorf("%v: what PutAlike wrote is not alike", op)
		}
		if op == RCWriteOnly && AlikeVA(frame) != 0x20000 {
			t.Errorf("goes to %#x", AlikeVA(frame))
		}
		for i := range op.HeaderLen() {
			if i >= BTHLen && i < BTHLen+8 {
				continue // the address
			}
			frame[i] ^= 1
			if Alike(frame, before) {
				t.Errorf("%v: alike though byte %d differs", op, i)
			}
			frame[i] ^= 1
		}
		frame[8] |= 0x80
		if got, want := Alike(frame, before), op == RCWriteOnly; got != want || !AlikeAsks(frame) {
			t.Errorf("%v: alike though it asks for an ACK: %v, want %v", op, got, want)
		}
		if frame[8] &= 0x7F; AlikeAsks(frame) {
			t.Errorf("%v: asks for an ACK", op)
		}
		for _, short := range [][]byte{nil, frame[:8], frame[:op.HeaderLen()+ICRCLen-1], frame[:len(frame)-4]} {
			if Alike(short, before) || Alike(short, short) {
				t.Errorf("%v: %d bytes are alike", op, len(short))
			}
		}
	}
	for op := range 256 {
		if AlikeLen(Opcode(op)) == 0 {
			b := make([]byte, 64)
			b[0] = byte(op)
			next := bytes.Clone(b)
			next[11]++
			if Alike(next, b) {
				t.Errorf("%v is alike", Opcode(op))
			}
		}
	}
}

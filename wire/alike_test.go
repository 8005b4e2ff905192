package wire

import (
	"bytes"
	"testing"

	"github.com/goroce/goroce/ib"
)

// TestPutAlike: the headers are those that PutHeaders writes.
func TestPutAlike(t *testing.T) {
	p := Packet{BTH: BTH{Opcode: RCWriteOnly, PadCnt: 3, PKey: ib.DefaultPKey, DestQP: 0x123456, PSN: ib.PSNMask, AckReq: true},
		RETH: RETH{VA: 0xFFFF_FFFF_FFFF_FC00, RKey: 0x89ABCDEF, Len: 1021}}
	before := p.AppendHeaders(nil)
	p.AckReq, p.PSN, p.RETH.VA = false, p.PSN.Add(1), p.RETH.VA+1021
	want := p.AppendHeaders(nil)
	got := bytes.Repeat([]byte{0xEE}, len(want)+4)
	PutAlike(got, before, p.PSN, p.RETH.VA)
	if n := len(want); n != AlikeLen || !bytes.Equal(got[:n], want) || got[n] != 0xEE {
		t.Errorf("% x, want % x", got, want)
	}
}

// TestAlike: what PutAlike writes is alike, and nothing else is.
func TestAlike(t *testing.T) {
	p := Packet{BTH: BTH{Opcode: RCWriteOnly, PKey: ib.DefaultPKey, DestQP: 0x123456, PSN: ib.PSNMask, AckReq: true},
		RETH: RETH{VA: 0x10000, RKey: 0x89ABCDEF, Len: 64}}
	before := append(p.AppendHeaders(nil), make([]byte, 64+ICRCLen)...)
	frame := bytes.Repeat([]byte{0xEE}, len(before))
	PutAlike(frame, before, p.PSN.Add(1), 0x20000)
	if !Alike(frame, before) {
		t.Error("what PutAlike wrote is not alike")
	}
	if va, payload := AlikeWrite(frame, 61); va != 0x20000 || len(payload) != 61 || &payload[0] != &frame[AlikeLen] {
		t.Errorf("goes to %#x with %d bytes", va, len(payload))
	}
	for i := range AlikeLen {
		if i >= BTHLen && i < BTHLen+8 {
			continue // the address
		}
		frame[i] ^= 1
		if Alike(frame, before) {
			t.Errorf("alike though byte %d differs", i)
		}
		frame[i] ^= 1
	}
	frame[8] |= 0x80
	if Alike(frame, before) {
		t.Error("alike though it asks for an ACK")
	}
	frame[8] &= 0x7F
	for _, short := range [][]byte{nil, frame[:8], frame[:AlikeLen+ICRCLen-1], frame[:len(frame)-4]} {
		if Alike(short, before) || Alike(short, short) {
			t.Errorf("%d bytes are alike", len(short))
		}
	}
	frame[0], before[0] = byte(RCWriteOnlyImm), byte(RCWriteOnlyImm)
	if Alike(frame, before) {
		t.Error("WRITEs with immediate are alike")
	}
}

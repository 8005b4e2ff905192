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
	if n := PutAlike(got, before, p.PSN, p.RETH.VA); n != len(want) || !bytes.Equal(got[:n], want) || got[n] != 0xEE {
		t.Errorf("% x of length %d, want % x", got, n, want)
	}
}

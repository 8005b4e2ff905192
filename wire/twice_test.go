package wire

import (
	"encoding/hex"
	"testing"
)

// flushes are FLUSH packets of rdma_rxe (Linux 6.12), from the IP header on.
var flushes = []string{
	"45000040f00b4000401136050a4d00020a4d0001c04412b7002c0000" +
		"1c00ffff00dd00108012345b00000001" + "00003b75d756d5400000012600001388" + "2a571ef7",
	"60000000002c1140fd770000000000000000000000000002fd770000000000000000000000000001c15612b7002c0000" +
		"1c00ffff00890010" + "8012345b00000001" + "000008bfa20cf540000001a800001388" + "e3d4b743",
}

// TestFlushOfRxe: rdma_rxe counts the headers of a FLUSH twice.
func TestFlushOfRxe(t *testing.T) {
	for _, text := range flushes {
		b, err := hex.DecodeString(text)
		if err != nil {
			t.Fatal(err)
		}
		var f Frame
		if err := f.DecodeIP(b); err != nil {
			t.Fatal(err)
		}
		if f.Outer.Check(f.Transport) {
			t.Error("the ICRC is that of the specification")
		}
		f.Outer.Twice = true
		if !f.Outer.Check(f.Transport) {
			t.Errorf("%x: the ICRC is not that of rdma_rxe", f.Transport)
		}
		if id := f.Outer.ID; f.Outer.Src.Is4() {
			f.Outer.ID = 0
			if got, ok := f.Outer.SolveID(f.Transport); !ok || got != id {
				t.Errorf("solved identification %#x, %v; want %#x", got, ok, id)
			}
		}
		f.Transport[20]++
		if f.Outer.Check(f.Transport) {
			t.Error("a damaged packet passes")
		}
	}
}

package engine

import (
	"encoding/binary"
	"testing"

	"github.com/goroce/goroce/ib"
)

// TestAloneTable: the table holds a bounded number of destinations for a limited time, and a new
// destination does not replace another one.
func TestAloneTable(t *testing.T) {
	gid := func(i int) (g ib.GID) {
		binary.BigEndian.PutUint32(g[12:], uint32(i))
		return g
	}
	var a aloneTable
	for i := range aloneMost {
		if !a.add(gid(i), 1) || a.add(gid(i), 2) {
			t.Fatalf("destination %d is not new once", i)
		}
	}
	if a.add(gid(aloneMost), aloneFor) || a.get(gid(aloneMost)) != 0 {
		t.Error("a full table took another destination")
	}
	if got := a.get(gid(7)); got != 1+aloneFor || len(a.list(aloneFor)) != aloneMost {
		t.Errorf("alone until %d, %d destinations; want %d, %d", got, len(a.list(aloneFor)), 1+aloneFor, aloneMost)
	}
	if len(a.list(1+aloneFor)) != 0 || !a.add(gid(aloneMost), 1+aloneFor) || len(a.until) != 1 {
		t.Errorf("%d destinations when all but one are over, want one, which is new", len(a.until))
	}
}

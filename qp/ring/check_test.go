package ring

import (
	"math/rand/v2"
	"testing"

	"github.com/goroce/goroce/ib"
)

// TestOrdinary: what the short check lets pass, the long one lets pass too.
func TestOrdinary(t *testing.T) {
	const seed = 1
	rng := rand.New(rand.NewPCG(seed, 0))
	some := func(values ...uint32) uint32 { return values[rng.IntN(len(values))] }
	passed := 0
	for range 200_000 {
		q := &Send{ring{maxSGE: uint16(some(0, 1, 2)), maxInline: 64}}
		wr := ib.SendWR{
			Opcode:     ib.WROpcode(rng.IntN(40)),
			Flags:      ib.SendFlags(some(0, 0, 1<<rng.IntN(8), rng.Uint32())),
			SGL:        make([]ib.SGE, some(0, 1, 1, 2)),
			Inline:     make([]byte, some(0, 0, 1)),
			RemoteAddr: uint64(rng.Uint32()),
			RemoteQPN:  ib.QPN(some(0, uint32(ib.QPNMask), uint32(ib.QPNMask)+1)),
			RemoteSRQ:  some(0, maxSRQNum, maxSRQNum+1),
		}
		for i := range wr.SGL {
			wr.SGL[i].Length = some(0, 8, MaxMessage-1, MaxMessage, MaxMessage+1)
		}
		if !q.ordinary(&wr) {
			continue
		}
		passed++
		if err := q.checkForm(&wr); err != nil || checkLength(&wr) != nil || rules[wr.Opcode].aligned {
			t.Fatalf("seed %d: %+v, of at most %d SGEs, passes the short check; the long one says %v and %v, want nil",
				seed, wr, q.maxSGE, err, checkLength(&wr))
		}
	}
	if passed < 1000 {
		t.Errorf("%d requests passed the short check, want 1,000 at least", passed)
	}
}

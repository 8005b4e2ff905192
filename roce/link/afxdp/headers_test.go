package afxdp

import (
	"bytes"
	"flag"
	"math/rand/v2"
	"testing"

	"github.com/goroce/goroce/roce/link"
	"github.com/goroce/goroce/wire"
)

var testSeed = flag.Uint64("afxdp.seed", rand.Uint64(), "the seed of TestHeaders and TestRingOrder; random if not set")

// Headers are those that package wire builds, whatever the identification.
func TestHeaders(t *testing.T) {
	seed := *testSeed
	t.Logf("-afxdp.seed=%d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	var h headers
	for range 2000 {
		f := wire.Frame{EtherDst: testMAC, EtherSrc: [6]byte{6, 5, 4, 3, 2, 1},
			Outer: wire.Outer{Src: v4(1), Dst: v4(byte(rng.Uint32())), SrcPort: uint16(rng.Uint32()),
				DstPort: link.Port, TrafficClass: uint8(rng.Uint32()), HopLimit: uint8(rng.Uint32()),
				ID: uint16(rng.Uint32())}}
		if rng.IntN(4) == 0 {
			f.Outer.Src, f.Outer.Dst, f.Outer.FlowLabel = v6(1), v6(byte(rng.Uint32())), rng.Uint32N(1<<20)
		}
		n := 16 + 4*rng.IntN(1000)
		h.frame = f
		h.build(n)
		for _, id := range []uint16{f.Outer.ID, 0, 1, 0xFFFF} {
			f.Outer.ID = id
			want := f.AppendHeaders(nil, n)
			got := bytes.Repeat([]byte{0xA5}, 80)
			if k := h.put(got, id); !bytes.Equal(got[:k], want) || got[k] != 0xA5 {
				t.Fatalf("%+v:\ngot  % x\nwant % x", f.Outer, got[:k], want)
			}
		}
	}
}

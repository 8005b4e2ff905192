package host

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/tests/linktest"
)

// What being live costs a device that nobody captures or disturbs: 64 KiB WRITEs to
// another device over loopback, side by side.
func BenchmarkLive(b *testing.B) {
	for _, with := range []bool{false, true} {
		b.Run(fmt.Sprintf("live=%v", with), func(b *testing.B) {
			var live *Live
			if with {
				live = new(Live)
			}
			x, y := benchSide(b, live), benchSide(b, live)
			x.connect(b, y, 0)
			y.connect(b, x, 0)
			b.SetBytes(int64(len(x.buf)))
			wr := ib.SendWR{Opcode: ib.WRWrite, SGL: []ib.SGE{{Addr: x.mr.Addr(), Length: uint32(len(x.buf)),
				LKey: x.mr.LKey()}}, RemoteAddr: y.mr.Addr(), RKey: y.mr.RKey()}
			var wc [1]ib.WC
			for b.Loop() {
				if _, err := x.qp.PostSend([]ib.SendWR{wr}); err != nil {
					b.Fatal(err)
				}
				for n := 0; n == 0; {
					var err error
					if n, err = x.cq.Poll(wc[:]); err != nil {
						b.Fatal(err)
					}
				}
				if err := wc[0].Err(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func benchSide(b *testing.B, live *Live) *side {
	b.Helper()
	dev, err := Open(Options{Addrs: []netip.Addr{linktest.Loopback()}, Live: live})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { dev.Close() })
	return newSide(b, dev)
}

package rdmacm_test

import (
	"testing"

	"github.com/goroce/goroce/roce/rdmacm"
)

// BenchmarkConnect dials and disconnects, over UDP on loopback: both ends, their
// QPs and CQs included.
func BenchmarkConnect(b *testing.B) {
	setup := func(b *testing.B) (*node, string) {
		x, y := udpPair(b)
		l := listen(b, y, y.at("0"), rdmacm.ListenConfig{})
		wait := serve(b, l)
		b.Cleanup(wait)
		b.ReportAllocs()
		b.ResetTimer()
		return x, l.Addr().String()
	}
	b.Run("InARow", func(b *testing.B) {
		h, addr := setup(b)
		for b.Loop() {
			visit(b, h, addr, short)
		}
	})
	b.Run("Parallel", func(b *testing.B) {
		h, addr := setup(b)
		b.SetParallelism(16)
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				visit(b, h, addr, short)
			}
		})
	})
}

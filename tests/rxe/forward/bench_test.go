package forward

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/goroce/goroce/roce/link/wrap"
)

// BenchmarkForward has single packets of 1,082 bytes carried one way, without a bottleneck and with one of 1 Gb/s, at
// which 117,000 of them pass in a second. Sender and receiver share the machine with the Forwarder.
func BenchmarkForward(b *testing.B) {
	for _, row := range []struct {
		name string
		c    wrap.FaultConfig
	}{
		{"free", wrap.FaultConfig{}},
		{"bottleneck", wrap.FaultConfig{Rate: 1e9, Buffer: 50 * time.Millisecond}},
	} {
		b.Run(row.name, func(b *testing.B) {
			x := newCable(b, row.c)
			frame := packet(1, 1024)
			const window = 4096 // packets on the way
			buf := make([]byte, maxFrame)
			b.SetBytes(int64(len(frame) - vnetLen))
			b.ResetTimer()
			for sent, got := 0, 0; got < b.N; {
				for ; sent < min(b.N, got+window); sent++ {
					x.send(frame)
				}
				x.await()
				for ; got < sent; got++ {
					if _, err := unix.Read(x.far, buf); err != nil {
						break // no more of them have arrived
					}
				}
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "packets/s")
		})
	}
}

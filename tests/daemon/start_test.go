package daemon

import (
	"testing"

	"github.com/goroce/goroce/roce/daemon/client"
	"github.com/goroce/goroce/tests/linktest"
)

// BenchmarkStart measures the time from the start of the daemon's process until a program has opened a device of it,
// and the daemon's resident memory then, after a garbage collection.
func BenchmarkStart(b *testing.B) {
	addr := linktest.Loopback().String()
	resident := 0
	for b.Loop() {
		d := startDaemonAt(b, b.TempDir(), addr)
		dev, err := client.Dial(b.Context(), client.Options{Socket: d.socket})
		if err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		resident += d.usage().rssKiB
		if err := dev.Close(); err != nil {
			b.Error(err)
		}
		d.stop()
		b.StartTimer()
	}
	b.ReportMetric(float64(resident)/1024/float64(b.N), "MiB")
}

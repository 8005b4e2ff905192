package rawsock_test

import (
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/goroce/goroce/roce/link"
	"github.com/goroce/goroce/tests/linktest"
)

// benchmark runs f on a link of each kind over veth; UDP sockets are there to compare.
func benchmark(b *testing.B, f func(b *testing.B, tx, rx link.Link)) {
	for _, row := range []struct {
		name string
		open linktest.Opener
	}{{"Offload", raw}, {"FrameByFrame", rawSingly}, {"UDP", plain}} {
		b.Run(row.name, func(b *testing.B) {
			na, nb := linktest.NewVeth(b, 1500)
			tx, rx := linktest.OpenIn(b, na, row.open, na.Addr4), linktest.OpenIn(b, nb, row.open, nb.Addr4)
			linktest.Meet(b, tx, rx)
			f(b, tx, rx)
		})
	}
}

// BenchmarkVeth moves runs of 62 frames of 1,040 bytes from one namespace to another,
// one goroutine a side, with a window that keeps the receive buffer from overflowing.
func BenchmarkVeth(b *testing.B) { benchmark(b, stream) }

const (
	benchFrames = 62
	benchWindow = 16 // runs
)

// stream sends b.N runs.
func stream(b *testing.B, tx, rx link.Link) {
	var psn uint32
	out := make([]link.Run, 4)
	for i := range out {
		out[i] = linktest.NewRun(tx, rx, &psn, benchFrames, 1040, 0)
	}
	credits := make(chan int, benchWindow+len(out)) // runs received
	go drain(rx, credits)
	b.ResetTimer()
	inFlight := 0
	for left := b.N; left > 0 || inFlight > 0; {
		for inFlight > benchWindow || left == 0 && inFlight > 0 {
			select {
			case n := <-credits:
				inFlight -= n
			case <-time.After(5 * time.Second):
				b.Fatalf("%d runs lost; receiver %+v", inFlight, rx.Stats())
			}
		}
		n, err := tx.Send(0, out[:min(len(out), left)])
		if err != nil {
			b.Fatal(err)
		}
		left -= n
		inFlight += n
		if n == 0 && left > 0 {
			_ = tx.Wait(-1, true)
		}
	}
	b.StopTimer()
	b.ReportMetric(float64(b.N)*float64(len(out[0].Buf))*8/b.Elapsed().Seconds()/1e9, "Gb/s")
	_ = rx.Close()
}

// drain receives until the link is closed.
func drain(rx link.Link, credits chan<- int) {
	in := make([]link.Run, 32)
	for frames := 0; ; {
		n, err := rx.Recv(0, in)
		if err != nil {
			return
		}
		for i := range in[:n] {
			frames += in[i].Frames()
		}
		if runs := frames / benchFrames; runs > 0 {
			frames -= runs * benchFrames
			credits <- runs
		}
		if n == 0 {
			_ = rx.Wait(-1, false)
		}
	}
}

// BenchmarkRun has one thread do the work of both ends in turn, and reports its
// processor time for a run, that of the kernel included: what else runs on the
// machine matters less than to BenchmarkVeth.
func BenchmarkRun(b *testing.B) {
	benchmark(b, func(b *testing.B, tx, rx link.Link) {
		var psn uint32
		out := []link.Run{linktest.NewRun(tx, rx, &psn, benchFrames, 1040, 0)}
		in := make([]link.Run, 32)
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		start := threadTime(b)
		for b.Loop() {
			linktest.SendAll(b, tx, out)
			for frames := 0; frames < benchFrames; {
				n, err := rx.Recv(0, in)
				if err != nil {
					b.Fatal(err)
				}
				for i := range in[:n] {
					frames += in[i].Frames()
				}
			}
		}
		b.ReportMetric(float64(threadTime(b)-start)/float64(b.N), "cpu-ns/run")
	})
}

// threadTime returns the processor time of this thread in nanoseconds.
func threadTime(b *testing.B) int64 {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t); err != nil {
		b.Fatal(err)
	}
	return t.Nano()
}

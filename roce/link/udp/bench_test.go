package udp_test

import (
	"testing"
	"time"

	"github.com/goroce/goroce/roce/link"
	"github.com/goroce/goroce/roce/link/udp"
	"github.com/goroce/goroce/roce/link/wrap"
	"github.com/goroce/goroce/tests/linktest"
	"github.com/goroce/goroce/wire"
)

// BenchmarkVeth moves runs of 62 frames of 1,040 bytes from one namespace to
// another over veth, one goroutine a side, and reports what arrived. "Sealed"
// computes the ICRC of every frame on both sides.
func BenchmarkVeth(b *testing.B) {
	for _, sealed := range []bool{false, true} {
		name := "Bare"
		if sealed {
			name = "Sealed"
		}
		b.Run(name, func(b *testing.B) {
			na, nb := linktest.NewVeth(b, 1500)
			tx, rx := openIn(b, na, udp.Options{}, na.Addr4), openIn(b, nb, udp.Options{}, nb.Addr4)
			if sealed {
				tx = wrap.Seal(tx)
			}
			stream(b, tx, rx, sealed)
		})
	}
}

// stream sends b.N runs, with a window that keeps the receive buffer from
// overflowing.
func stream(b *testing.B, tx, rx link.Link, check bool) {
	const batch = 4
	var next uint32
	out := make([]link.Run, batch)
	for i := range out {
		out[i] = linktest.NewRun(tx, rx, &next, 62, 1040, 0)
	}
	// Until the neighbour is resolved the kernel queues three runs and drops the rest.
	linktest.SendAll(b, tx, out[:1])
	linktest.Collect(b, rx, 62)
	b.SetBytes(int64(len(out[0].Buf)))
	b.ReportAllocs()
	credits := make(chan int, 64) // runs received
	go receive(b, rx, check, credits)
	b.ResetTimer()
	inFlight, patience := 0, time.NewTimer(0)
	for left := b.N; left > 0 || inFlight > 0; {
		for inFlight > 16 || left == 0 && inFlight > 0 {
			patience.Reset(5 * time.Second)
			select {
			case n := <-credits:
				inFlight -= n
			case <-patience.C:
				b.Fatalf("%d runs lost; receiver %+v", inFlight, rx.Stats())
			}
		}
		if left == 0 {
			break
		}
		n, err := tx.Send(0, out[:min(batch, left)])
		if err != nil {
			b.Fatal(err)
		}
		left -= n
		inFlight += n
		if n == 0 {
			_ = tx.Wait(-1, true)
		}
	}
	b.StopTimer()
	b.ReportMetric(float64(b.N)*float64(len(out[0].Buf))*8/b.Elapsed().Seconds()/1e9, "Gb/s")
	_ = rx.Close()
}

func receive(b *testing.B, rx link.Link, check bool, credits chan<- int) {
	in := make([]link.Run, 32)
	frames := 0
	for {
		n, err := rx.Recv(0, in)
		if err != nil {
			return
		}
		for i := range in[:n] {
			frames += in[i].Frames()
			if check && !checkRun(&in[i]) {
				b.Error("wrong ICRC")
				return
			}
		}
		if runs := frames / 62; runs > 0 {
			frames -= runs * 62
			credits <- runs
		}
		if n == 0 {
			_ = rx.Wait(-1, false)
		}
	}
}

func checkRun(r *link.Run) bool {
	o := wire.Outer{Src: r.Src, Dst: r.Dst, SrcPort: r.SrcPort, DstPort: link.Port}
	for i := range r.Frames() {
		o.ID = uint16(i)
		if !o.Check(r.Frame(i)) {
			return false
		}
	}
	return true
}

// BenchmarkPingPong sends a frame of 40 bytes back and forth; both ends spin.
func BenchmarkPingPong(b *testing.B) {
	na, nb := linktest.NewVeth(b, 1500)
	x, y := openIn(b, na, udp.Options{}, na.Addr4), openIn(b, nb, udp.Options{}, nb.Addr4)
	var next uint32
	there, back := linktest.NewRun(x, y, &next, 1, 40, 0), linktest.NewRun(y, x, &next, 1, 40, 0)
	go func() {
		in, out := make([]link.Run, 1), []link.Run{back}
		for {
			n, err := y.Recv(0, in)
			if err != nil {
				return
			}
			if n > 0 {
				_, _ = y.Send(0, out)
			}
		}
	}()
	b.ReportAllocs()
	in, out := make([]link.Run, 1), []link.Run{there}
	for b.Loop() {
		if _, err := x.Send(0, out); err != nil {
			b.Fatal(err)
		}
		for n := 0; n == 0; {
			n, _ = x.Recv(0, in)
		}
	}
	_ = y.Close()
}

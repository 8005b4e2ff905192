package device_test

import (
	"sync/atomic"
	"testing"

	"github.com/goroce/goroce/ib"
)

// BenchmarkEngine runs both ends and the memory between them on one goroutine, in
// virtual time. It measures the cost of messages without the kernel.
func BenchmarkEngine(b *testing.B) {
	for _, c := range []struct {
		name  string
		op    ib.WROpcode
		size  int
		flags ib.SendFlags
	}{
		{"WRITE/64KiB", ib.WRWrite, 1 << 16, 0},
		{"WRITE/4KiB", ib.WRWrite, 1 << 12, 0},
		{"WRITE/8B", ib.WRWrite, 8, 0},
		{"WRITE/8B_signaled", ib.WRWrite, 8, ib.SendSignaled},
		{"SEND/64KiB", ib.WRSend, 1 << 16, 0},
		{"SEND/8B", ib.WRSend, 8, 0},
		{"READ/64KiB", ib.WRRead, 1 << 16, 0},
	} {
		b.Run(c.name, func(b *testing.B) { benchmarkEngine(b, c.op, c.size, c.flags) })
	}
}

func benchmarkEngine(b *testing.B, op ib.WROpcode, size int, flags ib.SendFlags) {
	const window = 32
	w := newWorld(b, 1, 1<<16, plain)
	w.connect(ib.MTU1024, nil)
	wrs := make([]ib.SendWR, window)
	recvs := make([]ib.RecvWR, window)
	for i := range wrs {
		wrs[i] = ib.SendWR{Opcode: op, Flags: flags, SGL: w.a.sge(0, size), RemoteAddr: w.b.mr.Addr(),
			RKey: w.b.mr.RKey()}
		recvs[i] = ib.RecvWR{SGL: w.b.sge(0, size)}
	}
	wrs[window-1].Flags, wrs[window-1].ID = ib.SendSignaled, 1
	var wcs [window]ib.WC
	b.SetBytes(int64(size))
	for n := 0; n < b.N; n += window {
		if op == ib.WRSend {
			if _, err := w.b.qp.PostRecv(recvs); err != nil {
				b.Fatal(err)
			}
		}
		if _, err := w.a.qp.PostSend(wrs); err != nil {
			b.Fatal(err)
		}
		for left := true; left; {
			w.settle()
			w.now += 1000
			done, err := w.a.cq.Poll(wcs[:])
			if err != nil || done > 0 && wcs[0].Err() != nil {
				b.Fatal(err, wcs[0].Err())
			}
			left = done == 0 || wcs[done-1].ID == 0
		}
		w.b.cq.Poll(wcs[:])
	}
}

// BenchmarkClose makes and closes QPs of idle devices, two at a time on each. For a close, the
// device's loop leaves its sleep and lets the other goroutine use the link.
func BenchmarkClose(b *testing.B) {
	w := newLive(b, 1<<12)
	var next atomic.Uint32
	b.SetParallelism(2)
	b.RunParallel(func(pb *testing.PB) {
		h := []*host{w.a, w.b}[next.Add(1)%2]
		for pb.Next() {
			q, err := h.pd.CreateQP(ib.QPInit{Type: ib.RC, SendCQ: h.cq, RecvCQ: h.cq, Cap: ib.QPCap{MaxSendWR: 1}})
			if err != nil {
				b.Error(err)
				return
			}
			if err := q.Close(); err != nil {
				b.Error(err)
			}
		}
	})
}

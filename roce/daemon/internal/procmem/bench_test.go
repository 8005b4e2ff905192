//go:build linux

package procmem

import (
	"context"
	"net/netip"
	"testing"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/mr"
	"github.com/goroce/goroce/roce"
	"github.com/goroce/goroce/roce/internal/device"
	"github.com/goroce/goroce/roce/link/udp"
	"github.com/goroce/goroce/roce/link/wrap"
	"github.com/goroce/goroce/tests/linktest"
)

// end is one of two devices, with memory of either kind.
type end struct {
	dev roce.Device
	cq  ib.CQ
	qp  ib.QP
	mr  ib.MR
}

func openEnd(b *testing.B, mem mr.Memory) *end {
	b.Helper()
	must := func(err error) {
		b.Helper()
		if err != nil {
			b.Fatal(err)
		}
	}
	l, err := udp.Open([]netip.Addr{linktest.Loopback()}, udp.Options{})
	must(err)
	e := &end{}
	e.dev, err = roce.Open(wrap.Seal(l), roce.Options{})
	must(err)
	b.Cleanup(func() { e.dev.Close() })
	pd, err := e.dev.AllocPD()
	must(err)
	e.cq, err = e.dev.CreateCQ(ib.CQInit{Entries: 256})
	must(err)
	e.mr, err = pd.(*device.PD).RegMemory(mem, 0x10000, ib.LocalWrite|ib.RemoteWrite|ib.RemoteRead)
	must(err)
	e.qp, err = pd.CreateQP(ib.QPInit{Type: ib.RC, SendCQ: e.cq, RecvCQ: e.cq,
		Cap: ib.QPCap{MaxSendWR: 64, MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1}})
	must(err)
	return e
}

func (e *end) connect(b *testing.B, peer *end, mtu ib.MTU) {
	b.Helper()
	a := ib.QPAttr{Port: 1, Access: ib.QPAccessMask, AH: ib.AHAttr{DGID: peer.dev.Link().Local[0], Port: 1},
		PathMTU: mtu,
		DestQPN: peer.qp.Num(), MaxRdAtomic: 4, MaxDestRdAtomic: 4, MinRNRTimer: 12, Timeout: 17, RetryCnt: 7,
		RNRRetry: 7}
	if err := ib.ModifyTo(e.qp, a, ib.StateInit, ib.StateRTR, ib.StateRTS); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkStream transfers 64 KiB messages between two devices over UDP: from and to direct
// memory of this process, and memory of another process.
func BenchmarkStream(b *testing.B) {
	direct := func(testing.TB) mr.Memory { return mr.Bytes(make([]byte, 1<<20)) }
	other := func(b testing.TB) mr.Memory { return start(b).memory(childSize) }
	for _, c := range []struct {
		name     string
		op       ib.WROpcode
		from, to func(testing.TB) mr.Memory
	}{
		{"WRITE/direct", ib.WRWrite, direct, direct},
		{"WRITE/from another process", ib.WRWrite, other, direct},
		{"WRITE/to another process", ib.WRWrite, direct, other},
		{"WRITE/between two processes", ib.WRWrite, other, other},
		{"READ/direct", ib.WRRead, direct, direct},
		{"READ/between two processes", ib.WRRead, other, other},
	} {
		b.Run(c.name, func(b *testing.B) {
			near, far := openEnd(b, c.from(b)), openEnd(b, c.to(b))
			near.connect(b, far, ib.MTU4096)
			far.connect(b, near, ib.MTU4096)
			stream(b, near, far, c.op)
		})
	}
}

// stream keeps the send queue busy and waits for completions.
func stream(b *testing.B, near, far *end, op ib.WROpcode) {
	const size, window = 1 << 16, 16
	ctx := context.Background()
	b.SetBytes(size)
	var wcs [window]ib.WC
	posted, done := 0, 0
	for b.Loop() {
		for posted-done == window {
			n, err := near.cq.Wait(ctx, wcs[:])
			if err != nil {
				b.Fatal(err)
			}
			for _, wc := range wcs[:n] {
				if wc.Err() != nil {
					b.Fatal(wc.Err())
				}
			}
			done += n
		}
		at := uint64(posted % window * size)
		wr := ib.SendWR{Opcode: op, Flags: ib.SendSignaled, RemoteAddr: far.mr.Addr() + at, RKey: far.mr.RKey(),
			SGL: []ib.SGE{near.mr.SGE(int(at), size)}}
		if _, err := near.qp.PostSend([]ib.SendWR{wr}); err != nil {
			b.Fatal(err)
		}
		posted++
	}
}

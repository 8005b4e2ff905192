package device_test

import (
	"encoding/binary"
	"testing"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/internal/device"
	"github.com/goroce/goroce/roce/link"
	"github.com/goroce/goroce/roce/link/mem"
)

// TestSharesTakeTurns: another application's hundred QPs are busy, and fill its congestion window
// of the destination. A tenant's request that is posted now is still sent within two turns.
func TestSharesTakeTurns(t *testing.T) {
	network := mem.NewNetwork()
	a, b := newTenantQP(t, network, gidA), newTenantQP(t, network, gidB)
	connectTenantQPs(t, a, b)
	const qps, writes, size = 100, 8, 64 << 10
	w := &world{t: t, a: newHost(t, a.dev, size), b: newHost(t, b.dev, size)}
	for _, e := range w.connectMany(qps, nil) {
		w.use(e)
		for range writes {
			w.send(w.a, ib.SendWR{Opcode: ib.WRWrite, SGL: w.a.sge(0, size), RemoteAddr: w.b.mr.Addr(),
				RKey: w.b.mr.RKey()})
		}
	}
	frames, before := 0, -1 // frames sent since the tenant has posted, and before its packet
	a.link.sent = func(r *link.Run) {
		for i := range r.Frames() {
			if dest := ib.QPN(binary.BigEndian.Uint32(r.Frame(i)[4:]) & 0xFFFFFF); dest == b.qp.Num() &&
				before < 0 { // BTH
				before = frames
			}
			frames++
		}
	}
	for range 10 {
		w.now += 1000
		a.dev.Step(w.now)
		b.dev.Step(w.now)
	}
	if frames < qps {
		t.Fatalf("the other application: got %d packets sent, want at least %d", frames, qps)
	}
	b.recv(ib.RecvWR{SGL: []ib.SGE{{Addr: 0x1000, Length: 8, LKey: b.mr.LKey()}}})
	frames = 0
	a.send(ib.SendWR{Opcode: ib.WRSend, SGL: []ib.SGE{{Addr: 0x1000, Length: 8, LKey: a.mr.LKey()}}})
	for range 10 {
		w.now += 1000
		a.dev.Step(w.now)
		b.dev.Step(w.now)
	}
	if before < 0 || before > 2*device.AppTurn {
		t.Errorf("%d packets of the other application left first (of %d), want at most %d", before, frames,
			2*device.AppTurn)
	}
}

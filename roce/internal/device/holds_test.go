package device_test

import (
	"testing"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/internal/device"
)

// TestShardHolds: no verb holds the lock of a shard, for which all its QPs wait, while it looks at more objects than
// MoveMost, however many there are.
func TestShardHolds(t *testing.T) {
	for _, x := range []struct {
		name string
		of   int // objects that the verb looks at in all
		verb func(x *turns)
	}{
		{"a CQ full of completions is resized", longest, func(x *turns) {
			x.post(x.attacked(1, ib.UC, longest)[0], longest, ib.SendWR{Opcode: ib.WRWrite})
			for range 10_000 {
				x.now += 1000
				x.a.dev.Step(x.now)
			}
			must(x.t, x.cq.Resize(2*longest))
			if n := x.polled(); n != longest {
				x.t.Errorf("got %d completions after the resize, want %d", n, longest)
			}
		}},
		{"a full SRQ is resized", longest / 2, func(x *turns) {
			s := x.fullSRQ(ib.SRQInit{SRQAttr: ib.SRQAttr{MaxWR: longest / 2, MaxSGE: 1}})
			must(x.t, s.Modify(ib.SRQAttr{MaxWR: longest}, ib.SRQMaxWR))
			if n, err := s.PostRecv(make([]ib.RecvWR, longest)); n != longest/2 {
				x.t.Errorf("got room for %d receives, %v; want %d", n, err, longest/2)
			}
		}},
		{"an XRC SRQ of a domain with many targets is destroyed", 3 * device.MoveMost, func(x *turns) {
			domain, err := x.a.dev.AllocXRCD()
			must(x.t, err)
			s := x.fullSRQ(ib.SRQInit{Type: ib.SRQXRC, XRCD: domain, CQ: x.cq,
				SRQAttr: ib.SRQAttr{MaxWR: 8, MaxSGE: 1}})
			for range 3 * device.MoveMost {
				_, err := x.a.pd.CreateQP(ib.QPInit{Type: ib.XRCTGT, XRCD: domain})
				must(x.t, err)
			}
			must(x.t, s.Close())
		}},
	} {
		t.Run(x.name, func(t *testing.T) {
			w := newTurns(t)
			x.verb(w)
			if n := w.a.dev.LongestHold(); n == 0 || n > device.MoveMost {
				t.Errorf("got %d objects in one hold of the lock, want 1 to %d of %d", n, device.MoveMost, x.of)
			}
		})
	}
}

// fullSRQ makes an SRQ, and fills it.
func (x *turns) fullSRQ(init ib.SRQInit) ib.SRQ {
	x.t.Helper()
	s, err := x.a.pd.CreateSRQ(init)
	must(x.t, err)
	_, err = s.PostRecv(make([]ib.RecvWR, init.MaxWR))
	must(x.t, err)
	return s
}

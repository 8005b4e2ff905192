package device_test

import (
	"testing"

	"github.com/goroce/goroce/ib"
)

// TestRoomOfEnded: when a QP ends whose packets fill the congestion window of a destination,
// the QPs that wait for room there become ready: they have no timer that would make them try
// again.
func TestRoomOfEnded(t *testing.T) {
	for _, c := range []struct {
		name string
		end  func(q ib.QP) error
	}{
		{"to ERR", func(q ib.QP) error { return q.Modify(ib.QPAttr{State: ib.StateErr}, ib.AttrState) }},
		{"to RESET", func(q ib.QP) error { return q.Modify(ib.QPAttr{State: ib.StateReset}, ib.AttrState) }},
		{"close", func(q ib.QP) error { return q.Close() }},
	} {
		t.Run(c.name, func(t *testing.T) {
			const size = 1 << 20
			w := newWorld(t, 1, size, plain)
			w.makeQP(w.a)
			first := w.a.qp
			w.bringUp(w.a, gidB, 0x777, ib.MTU1024, nil) // no such QP exists
			w.connect(ib.MTU1024, nil)
			wr := ib.SendWR{ID: 7, Opcode: ib.WRWrite, SGL: w.a.sge(0, size), RemoteAddr: w.b.mr.Addr(),
				RKey: w.b.mr.RKey()}
			if _, err := first.PostSend([]ib.SendWR{wr}); err != nil {
				t.Fatal(err)
			}
			w.settle()
			w.send(w.a, ib.SendWR{ID: 1, Opcode: ib.WRWrite, SGL: w.a.sge(0, 8), RemoteAddr: w.b.mr.Addr(),
				RKey: w.b.mr.RKey()})
			w.settle()
			var wcs [2]ib.WC
			if n, _ := w.a.cq.Poll(wcs[:]); n != 0 {
				t.Fatalf("%+v: the first QP has left room, want no completion", wcs[0])
			}
			if err := c.end(first); err != nil {
				t.Fatal(err)
			}
			w.settle()
			n, _ := w.a.cq.Poll(wcs[:])
			if n == 0 || wcs[n-1].ID != 1 || wcs[n-1].Err() != nil {
				t.Errorf("%d completions, %+v; want that of the QP that has waited", n, wcs)
			}
		})
	}
}

package device_test

import (
	"testing"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/qp"
	"github.com/goroce/goroce/roce/internal/device"
	"github.com/goroce/goroce/roce/link"
	"github.com/goroce/goroce/roce/link/wrap"
	"github.com/goroce/goroce/wire"
)

// crowded is a link whose receive buffer is nearly full all the time.
type crowded struct{ link.Link }

func (l crowded) Recv(now ib.Instant, runs []link.Run) (int, error) {
	n, err := l.Link.Recv(now, runs)
	for i := range runs[:n] {
		runs[i].Congested = true
	}
	return n, err
}

// TestSocketIsQueue: a device whose socket is nearly full tells senders to send less, as one does that gets marked
// packets.
func TestSocketIsQueue(t *testing.T) {
	w := newWorld(t, 1, 1<<16, stack{below: same, above: func(l link.Link) link.Link { return crowded{l} }})
	w.connect(ib.MTU1024, nil)
	w.send(w.a, ib.SendWR{Opcode: ib.WRWrite, SGL: w.a.sge(0, 1<<16), RemoteAddr: w.b.mr.Addr(), RKey: w.b.mr.RKey()})
	if wc := w.poll(w.a); wc.Err() != nil {
		t.Fatal(wc.Err())
	}
	sender, receiver := w.a.dev.Stats(), w.b.dev.Stats()
	if receiver.SentCNPs == 0 || sender.RcvdCNPs == 0 {
		t.Errorf("got %d CNPs sent and %d received, want some", receiver.SentCNPs, sender.RcvdCNPs)
	}
}

// TestCEReachesQP: each packet that has met congestion on its way is CE at its QP, whether the QP handles it by itself
// or with others of its run.
func TestCEReachesQP(t *testing.T) {
	for _, c := range []struct {
		name  string
		mark  float64 // share of the frames that the network marks, each in a run of its own
		class uint8   // traffic class of the senders
		want  func(received uint64) uint64
	}{
		{"no congestion", 0, 0x68 | uint8(wire.ECT0), func(uint64) uint64 { return 0 }},
		{"the network marks frames", 1, 0x68 | uint8(wire.ECT0), func(n uint64) uint64 { return n }},
		{"runs come marked", 0, 0x68 | uint8(wire.CE), func(n uint64) uint64 { return n }},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, 1, 1<<16, stack{below: same, above: func(l link.Link) link.Link {
				return wrap.Fault(l, wrap.FaultConfig{Seed: 1, MarkCE: c.mark})
			}})
			w.connect(ib.MTU1024, func(a *ib.QPAttr) { a.AH.TrafficClass = c.class })
			for _, op := range []ib.WROpcode{ib.WRWrite, ib.WRSend, ib.WRRead} {
				w.recv(w.b, ib.RecvWR{SGL: w.b.sge(0, 1<<16)})
				w.send(w.a, ib.SendWR{Opcode: op, SGL: w.a.sge(0, 1<<16), RemoteAddr: w.b.mr.Addr(),
					RKey: w.b.mr.RKey()})
				if wc := w.poll(w.a); wc.Err() != nil {
					t.Fatal(wc.Err())
				}
			}
			for _, h := range []*host{w.a, w.b} {
				st := h.dev.Stats()
				_, path, err := h.qp.(*device.QP).Traffic()
				must(t, err)
				if path.RcvdCNPs != st.RcvdCNPs || path.MarkedPkts > st.ECNMarked ||
					(path.MarkedPkts > 0) != (st.ECNMarked > 0) {
					t.Errorf("%v: the way there has %+v, want those of the device: %d packets marked, %d CNPs", h.gid(),
						path.Marks, st.ECNMarked, st.RcvdCNPs)
				}
				if path.QPs != 1 || path.Control != qp.Cubic || path.MinRTT > path.RTT || path.Rate < 0 {
					t.Errorf("%v: got %+v of the way, want one QP, cubic, and round trips", h.gid(), path)
				}
				if got, want := counter(&st, "np_ecn_marked_roce_packets"), c.want(st.RcvdPkts); got != want ||
					st.RcvdPkts == 0 {
					t.Errorf("%v: got %d packets marked, want %d of %d", h.gid(), got, want, st.RcvdPkts)
				}
			}
		})
	}
}

// counter returns the value of a counter of that name.
func counter(st *device.Stats, name string) uint64 {
	for _, c := range st.Counters() {
		if c.Name == name {
			return c.Value
		}
	}
	return 0
}

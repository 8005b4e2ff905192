package device_test

import (
	"testing"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/qp"
	"github.com/goroce/goroce/roce/internal/device"
	"github.com/goroce/goroce/roce/link/wrap"
	"github.com/goroce/goroce/wire"
)

// traffic returns the counters of h's QP.
func (h *host) traffic(t testing.TB) qp.Traffic {
	t.Helper()
	got, _, err := h.qp.(*device.QP).Traffic()
	must(t, err)
	return got
}

// TestTraffic: each QP counts its messages and bytes; on a network that loses nothing, what one has sent the other has
// received.
func TestTraffic(t *testing.T) {
	w := newWorld(t, 1, 4096, plain)
	w.connect(1024, nil)
	for range 3 {
		w.recv(w.b, ib.RecvWR{SGL: w.b.sge(0, 2048)})
		w.send(w.a, ib.SendWR{Opcode: ib.WRSend, SGL: w.a.sge(0, 1100)}) // two packets
		w.poll(w.a)
	}
	const sent = 3 * (1024 + 76 + 2*(wire.BTHLen+wire.ICRCLen))
	const ack = wire.BTHLen + wire.AETHLen + wire.ICRCLen
	acks := w.b.traffic(t).SentBytes
	if acks < 3*ack || acks%ack != 0 {
		t.Errorf("B has sent %d bytes, want at least three ACKs of %d", acks, ack)
	}
	want := qp.Traffic{SentBytes: sent, RcvdBytes: acks, SentMessages: 3}
	if got := w.a.traffic(t); got != want {
		t.Errorf("A: got %+v, want %+v", got, want)
	}
	want = qp.Traffic{SentBytes: acks, RcvdBytes: sent, RcvdMessages: 3}
	if got := w.b.traffic(t); got != want {
		t.Errorf("B: got %+v, want %+v", got, want)
	}
	_, path, err := w.a.qp.(*device.QP).Traffic()
	must(t, err)
	if path.Window == 0 || path.InFlight != 0 {
		t.Errorf("got %+v of the way, want a window, and nothing in flight", path)
	}
}

// TestTrafficAgain: packets that are sent again and RNR NAKs are counted at the QP that they belong to.
func TestTrafficAgain(t *testing.T) {
	var rules wrap.Rules
	w := newWorld(t, 1, 4096, stack{above: rules.Above, below: same})
	w.connect(1024, func(a *ib.QPAttr) { a.RNRRetry = 7 })
	_, err := rules.Add(wrap.Rule{Action: wrap.ActDrop, Class: "send", Count: 1})
	must(t, err)
	w.recv(w.b, ib.RecvWR{SGL: w.b.sge(0, 8)})
	w.send(w.a, ib.SendWR{Opcode: ib.WRSend, SGL: w.a.sge(0, 8)})
	w.poll(w.a)
	const again = wire.BTHLen + 8 + wire.ICRCLen
	if got := w.a.traffic(t); got.ResentPkts != 1 || got.ResentBytes != again || got.SentMessages != 1 ||
		got.SpuriousPkts != 0 {
		t.Errorf("after a loss: got %+v, want a packet of %d bytes sent again, not in vain, and a message", got, again)
	}
	if got := w.a.dev.Stats(); got.ResentPkts != 1 || got.ResentBytes != again {
		t.Errorf("after a loss: got %d packets, %d bytes sent again by the device, want 1, %d", got.ResentPkts,
			got.ResentBytes, again)
	}
	w.send(w.a, ib.SendWR{Opcode: ib.WRSend, SGL: w.a.sge(0, 8)})
	w.settle()
	w.recv(w.b, ib.RecvWR{SGL: w.b.sge(0, 8)})
	w.poll(w.a)
	if a, b := w.a.traffic(t), w.b.traffic(t); a.RcvdRNR != 1 || b.SentRNR != 1 || b.RcvdMessages != 2 {
		t.Errorf("after an RNR NAK: got A %+v and B %+v, want one each, and two messages", a, b)
	}
}

package rsocket

import (
	"net/netip"
	"sync/atomic"
	"testing"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce"
)

// hand is a transport that the test has connected; the peer is not told of its end.
type hand struct {
	qp     ib.QP
	done   chan struct{}
	reason atomic.Pointer[error]
}

func (h *hand) Done() <-chan struct{} { return h.done }
func (h *hand) Close() error          { return h.qp.Close() }

func (h *hand) Err() error {
	if reason := h.reason.Load(); reason != nil {
		return *reason
	}
	return nil
}

// end ends the connection, once.
func (h *hand) end(reason error) {
	h.reason.Store(&reason)
	_ = h.qp.Modify(ib.QPAttr{State: ib.StateErr}, ib.AttrState)
	close(h.done)
}

// half is one end of a connection before newConn.
type half struct {
	dev roce.Device
	ep  *endpoint
	qp  ib.QP
}

func newHalf(t testing.TB, dev roce.Device, o Options) *half {
	t.Helper()
	ep, err := newEndpoint(dev, o)
	if err != nil {
		t.Fatal(err)
	}
	qp, err := ep.pd.CreateQP(ib.QPInit{Type: ib.RC, SendCQ: ep.cq, RecvCQ: ep.cq, Cap: ep.cap(), SigAll: true})
	if err != nil {
		t.Fatal(err)
	}
	return &half{dev, ep, qp}
}

// bringUp takes the QP to RTS.
func (h *half) bringUp(t testing.TB, peer *half) {
	t.Helper()
	if err := ib.ModifyTo(h.qp, ib.QPAttr{Port: 1, Access: ib.RemoteWrite}, ib.StateInit); err != nil {
		t.Fatal(err)
	}
	if err := h.ep.postReceives(h.qp); err != nil {
		t.Fatal(err)
	}
	port, err := h.dev.QueryPort(1)
	if err != nil {
		t.Fatal(err)
	}
	a := ib.QPAttr{AH: ib.AHAttr{DGID: peer.dev.Link().Local[0]}, PathMTU: port.ActiveMTU,
		DestQPN: peer.qp.Num(), MinRNRTimer: 12, Timeout: 16, RetryCnt: 7, RNRRetry: 7}
	// Timeout: eight times 0.27 s, longer than a busy machine stands still
	if err := ib.ModifyTo(h.qp, a, ib.StateRTR, ib.StateRTS); err != nil {
		t.Fatal(err)
	}
}

// start makes the connection. The peer's record goes through its encoding.
func (h *half) start(t testing.TB, peer *half) (*Conn, *hand) {
	t.Helper()
	r := peer.ep.record()
	r, err := parseRecord(r.append(nil))
	if err != nil {
		t.Fatal(err)
	}
	tr := &hand{qp: h.qp, done: make(chan struct{})}
	return newConn(h.ep, h.qp, tr, r, addrOf(h.dev), addrOf(peer.dev)), tr
}

func addrOf(d roce.Device) netip.AddrPort {
	return netip.AddrPortFrom(d.Link().Local[0].Addr(), 7471)
}

// pair is a connection and its devices.
type pair struct {
	a, b       *Conn
	trA, trB   *hand
	devA, devB roce.Device
}

// newPair connects two devices by hand. The connections are closed with the test.
func newPair(t testing.TB, open medium, o Options) *pair {
	t.Helper()
	p := &pair{}
	p.devA, p.devB = open(t)
	p.connect(t, o)
	return p
}

// connect makes a connection between the devices.
func (p *pair) connect(t testing.TB, o Options) {
	t.Helper()
	a, b := newHalf(t, p.devA, o), newHalf(t, p.devB, o)
	a.bringUp(t, b)
	b.bringUp(t, a)
	p.a, p.trA = a.start(t, b)
	p.b, p.trB = b.start(t, a)
	ca, cb := p.a, p.b
	t.Cleanup(func() {
		ca.Close()
		cb.Close()
		<-ca.Done()
		<-cb.Done()
	})
}

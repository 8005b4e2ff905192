package rdmacm_test

import (
	"bytes"
	"context"
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/link"
	"github.com/goroce/goroce/roce/rdmacm"
	"github.com/goroce/goroce/roce/simtest"
	"github.com/goroce/goroce/tests/require"
	"github.com/goroce/goroce/wire"
)

// rejection returns the RejectError of a Dial.
func rejection(t testing.TB, h *node, addr string, o rdmacm.Config) *rdmacm.RejectError {
	t.Helper()
	c, err := h.cm.Dial(patience(t), addr, o)
	var reject *rdmacm.RejectError
	if !errors.As(err, &reject) {
		t.Fatalf("Dial returned %v, %v; want a RejectError", c, err)
	}
	return reject
}

// TestNoListener: reason 8, and what to look at.
func TestNoListener(t *testing.T) {
	simulate(t, func(t *testing.T, a, b *node) {
		l := listen(t, b, b.at("0"), rdmacm.ListenConfig{})
		for _, addr := range []string{b.at("1"), "[2001:db8::2]:" + port(l)} {
			e := rejection(t, a, addr, rdmacm.Config{})
			if e.Reason != ib.RejectInvalidServiceID || !strings.Contains(e.Error(), "reason 8") ||
				!strings.Contains(e.Error(), "nobody listens") {
				t.Errorf("%s: %v, want %v, %q and %q", addr, e, ib.RejectInvalidServiceID, "reason 8", "nobody listens")
			}
		}
		if n := b.cm.Stats().NoListener; n != 2 {
			t.Errorf("%d requests without a listener are counted, want 2", n)
		}
	})
}

// TestRequest: who asks for a Request sees what the peer wants, and answers.
func TestRequest(t *testing.T) {
	simulate(t, func(t *testing.T, a, b *node) {
		ctx := patience(t)
		l := listen(t, b, ":0", rdmacm.ListenConfig{})
		rejected := make(chan *rdmacm.RejectError, 1)
		go func() {
			rejected <- rejection(t, a, b.at(port(l)), rdmacm.Config{PrivateData: []byte("let me in"),
				ResponderResources: 3, InitiatorDepth: 5})
		}()
		r, err := l.Request(ctx)
		must(t, err)
		if diff := cmp.Diff(padded("let me in", 56), r.PrivateData()); diff != "" {
			t.Error(diff)
		}
		if a := r.QPAttr(); a.MaxDestRdAtomic != 5 || a.MaxRdAtomic != 3 || r.Service() != ib.RC {
			t.Errorf("the peer wants %d READs outstanding and accepts %d, service %v; want 5, 3, RC", a.MaxDestRdAtomic,
				a.MaxRdAtomic, r.Service())
		}
		if r.LocalAddr() != addrPort(b.at(port(l))) || r.RemoteAddr().Addr() != a.addr || r.RemoteAddr().Port() == 0 {
			t.Errorf("from %v to %v; want %v to %v", r.RemoteAddr(), r.LocalAddr(), a.addr, addrPort(b.at(port(l))))
		}
		must(t, r.Delay(time.Second))
		if err := r.Reject(make([]byte, 149)); !errors.Is(err, ib.ErrPrivateData) {
			t.Errorf("rejected with too much private data: %v, want %v", err, ib.ErrPrivateData)
		}
		must(t, r.Reject([]byte("go away")))
		e := <-rejected
		if e.Reason != ib.RejectConsumer || !bytes.Equal(e.PrivateData, padded("go away", 148)) ||
			!strings.Contains(e.Error(), "reason 28") || !strings.Contains(e.Error(), "application") {
			t.Errorf("%v with %q; want %v, %q and %q", e, e.PrivateData, ib.RejectConsumer, "go away", "reason 28")
		}
		for name, again := range map[string]func() error{
			"Reject":         func() error { return r.Reject(nil) },
			"Delay":          func() error { return r.Delay(1) },
			"Accept":         func() error { _, err := r.Accept(ctx, rdmacm.Config{}); return err },
			"AcceptDatagram": func() error { _, err := r.AcceptDatagram(2, 0, nil); return err },
		} {
			if err := again(); err == nil || !strings.Contains(err.Error(), r.RemoteAddr().String()) {
				t.Errorf("%s after the answer: %v, want %q", name, err, r.RemoteAddr().String())
			}
		}
	})
}

// TestAcceptRefuses: what this end has not is refused for its reason, and Accept
// goes on to the next.
func TestAcceptRefuses(t *testing.T) {
	short := func(l link.Link) link.Link { return smallMTU{l} }
	simulateOn(t, simtest.Config{Wrap: only(1, short)}, func(t *testing.T, hosts []*node) {
		a, b := hosts[0], hosts[1]
		ctx := patience(t)
		l := listen(t, b, b.at("0"), rdmacm.ListenConfig{})
		accepted := make(chan *rdmacm.Conn, 1)
		go func() { c, _ := l.Accept(ctx); accepted <- c }()
		if e := rejection(t, a, l.Addr().String(), rdmacm.Config{Service: ib.UC,
			PathMTU: ib.MTU256}); e.Reason != ib.RejectInvalidTransport {
			t.Errorf("UC to an RC listener: %v, want %v", e, ib.RejectInvalidTransport)
		}
		e := rejection(t, a, l.Addr().String(), rdmacm.Config{PathMTU: ib.MTU4096})
		if e.Reason != ib.RejectInvalidMTU || e.Info[0] != byte(ib.MTU1024.Code()) ||
			!strings.Contains(e.Error(), "Config.PathMTU") {
			t.Errorf("a path MTU that the server has not: %v, info %v; want %v, %d and %q", e, e.Info[:1],
				ib.RejectInvalidMTU, ib.MTU1024.Code(), "Config.PathMTU")
		}
		prepared := 0
		c, err := a.cm.Dial(ctx, l.Addr().String(), rdmacm.Config{Prepare: func(c *rdmacm.Conn) error {
			prepared++
			return nil
		}})
		must(t, err)
		if mtu := c.QPAttr().PathMTU; mtu != ib.MTU1024 || prepared != 1 {
			t.Errorf("asked again for path MTU %d, want 1024; prepared %d times", mtu, prepared)
		}
		defer c.Close()
		must(t, (<-accepted).Close())
	})
}

// TestSmallerPathMTU: programs that use IDs of the connection manager, and have no say in the path MTU, are connected
// with the smaller one of the two ports: the request comes with it, and the reply. The other way round, too.
func TestSmallerPathMTU(t *testing.T) {
	short := func(l link.Link) link.Link { return smallMTU{l} }
	for narrow := range 2 {
		simulateOn(t, simtest.Config{Wrap: only(narrow, short)}, func(t *testing.T, hosts []*node) {
			a, b := newIDs(t, hosts[0]), newIDs(t, hosts[1])
			listener := a.id()
			must(t, listener.Bind(netip.AddrPortFrom(hosts[0].addr, 7471)))
			must(t, listener.Listen(1))
			id := b.id()
			must(t, id.ResolveAddr(netip.AddrPort{}, netip.AddrPortFrom(hosts[0].addr, 7471), time.Second))
			b.next(ib.CMAddrResolved)
			must(t, id.ResolveRoute(time.Second))
			b.next(ib.CMRouteResolved)
			must(t, id.Connect(ib.CMConnParam{QPN: b.qp(ib.RC).Num()}))
			request := a.next(ib.CMConnectRequest).ID
			must(t, request.Accept(ib.CMConnParam{QPN: a.qp(ib.RC).Num()}))
			b.next(ib.CMConnectResponse)
			for name, end := range map[string]ib.CMID{"passive": request, "active": id} {
				attr, _, err := end.InitQPAttr(ib.StateRTR)
				must(t, err)
				if attr.PathMTU != ib.MTU1024 {
					t.Errorf("host %d is narrow: the %s end's path MTU is %d, want 1024", narrow, name, attr.PathMTU)
				}
			}
		})
	}
}

// ids is an event channel of a host, for tests of IDs.
type ids struct {
	t  *testing.T
	h  *node
	ch ib.CM
	pd ib.PD
	cq ib.CQ
}

func newIDs(t *testing.T, h *node) *ids {
	t.Helper()
	ch, err := h.dev.OpenCM()
	must(t, err)
	t.Cleanup(func() { ch.Close() })
	pd, err := h.dev.AllocPD()
	must(t, err)
	cq, err := h.dev.CreateCQ(ib.CQInit{Entries: 16})
	must(t, err)
	return &ids{t, h, ch, pd, cq}
}

func (i *ids) id() ib.CMID {
	i.t.Helper()
	id, err := i.ch.CreateID(ib.CMIDInit{})
	must(i.t, err)
	return id
}

func (i *ids) qp(typ ib.QPType) ib.QP {
	i.t.Helper()
	qp, err := i.pd.CreateQP(ib.QPInit{Type: typ, SendCQ: i.cq, RecvCQ: i.cq,
		Cap: ib.QPCap{MaxSendWR: 1, MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1}})
	must(i.t, err)
	return qp
}

// next returns the next event, which must be of the type.
func (i *ids) next(want ib.CMEventType) ib.CMEvent {
	i.t.Helper()
	ev, err := i.ch.NextEvent(patience(i.t))
	must(i.t, err)
	if ev.Type != want {
		i.t.Fatalf("event %v with status %d, want %v", ev.Type, ev.Status, want)
	}
	return ev
}

// smallMTU is an Ethernet of 1500 bytes.
type smallMTU struct{ link.Link }

func (s smallMTU) Caps() link.Caps { c := s.Link.Caps(); c.MTU = 1500; return c }

// TestBacklog: what is beyond it is refused for want of resources; what waits is
// still served.
func TestBacklog(t *testing.T) {
	simulate(t, func(t *testing.T, a, b *node) {
		ctx := patience(t)
		l := listen(t, b, b.at("0"), rdmacm.ListenConfig{Backlog: 2})
		dialled := make(chan error, 2)
		for range 2 {
			go func() {
				c, err := a.cm.Dial(ctx, l.Addr().String(), rdmacm.Config{})
				if err == nil {
					err = c.Close()
				}
				dialled <- err
			}()
		}
		require.Until(t, "two requests wait", func() bool { return requests(b) == 2 })
		if e := rejection(t, a, l.Addr().String(), rdmacm.Config{}); e.Reason != ib.RejectNoResources ||
			!strings.Contains(e.Error(), "backlog") {
			t.Errorf("the third: %v, want %v and %q", e, ib.RejectNoResources, "backlog")
		}
		for range 2 {
			c, err := l.Accept(ctx)
			must(t, err)
			defer c.Close()
		}
		for range 2 {
			must(t, <-dialled)
		}
	})
}

// TestListenPorts: a port belongs to one listener of an address and service; port 0
// is one that is free.
func TestListenPorts(t *testing.T) {
	simulate(t, func(t *testing.T, a, b *node) {
		ctx := patience(t)
		one := listen(t, b, "192.0.2.2:7471", rdmacm.ListenConfig{})
		other := listen(t, b, "[2001:db8::2]:7471", rdmacm.ListenConfig{})
		if _, err := b.cm.Listen(ctx, ":7471", rdmacm.ListenConfig{}); !errors.Is(err, ib.ErrAddrInUse) {
			t.Errorf("all addresses, beside two of them: %v, want %v", err, ib.ErrAddrInUse)
		}
		listen(t, b, "192.0.2.2:7471", rdmacm.ListenConfig{Config: rdmacm.Config{Service: ib.UD}})
		if _, err := b.cm.Listen(ctx, "192.0.2.2:7471", rdmacm.ListenConfig{}); !errors.Is(err, ib.ErrAddrInUse) {
			t.Errorf("the same again: %v, want %v", err, ib.ErrAddrInUse)
		}
		for _, l := range []*rdmacm.Listener{one, other} { // each gets what is for its address
			_, s := dialTo(t, a, l, l.Addr().String(), rdmacm.Config{})
			if s.LocalAddr() != l.Addr() {
				t.Errorf("the listener accepted at %v, want %v", s.LocalAddr(), l.Addr())
			}
		}
		must(t, one.Close())
		listen(t, b, "192.0.2.2:7471", rdmacm.ListenConfig{})
		x, y := listen(t, b, ":0", rdmacm.ListenConfig{}), listen(t, b, ":0", rdmacm.ListenConfig{})
		if x.Addr().Port() < 32768 || y.Addr().Port() < 32768 || x.Addr() == y.Addr() {
			t.Errorf("chosen: %v, %v; want two from 32768 up", x.Addr(), y.Addr())
		}
		for addr, says := range map[string]string{"192.0.2.1:0": "192.0.2.2, 2001:db8::2, fe80::2",
			"192.0.2.2": "missing port"} {
			if _, err := b.cm.Listen(ctx, addr, rdmacm.ListenConfig{}); err == nil || !strings.Contains(err.Error(),
				says) {
				t.Errorf("listen %s: %v, want it to say %q", addr, err, says)
			}
		}
		if _, err := b.cm.Listen(ctx, ":0", rdmacm.ListenConfig{Backlog: -1}); !errors.Is(err, ib.ErrInvalid) {
			t.Errorf("a negative backlog: %v, want %v", err, ib.ErrInvalid)
		}
	})
}

// TestSilentPeer: a peer whose RTU never comes keeps no other waiting, and is let in
// when its data show that it is ready.
func TestSilentPeer(t *testing.T) {
	simulateOn(t, simtest.Config{Hosts: 3, Wrap: only(0, without(wire.AttrRTU))}, func(t *testing.T, hosts []*node) {
		mute, b, a := hosts[0], hosts[1], hosts[2]
		ctx := patience(t)
		prepared := make(chan *rdmacm.Conn, 2)
		l := listen(t, b, b.at("0"), rdmacm.ListenConfig{Config: rdmacm.Config{Prepare: func(c *rdmacm.Conn) error {
			prepared <- c
			_, err := c.QP().PostRecv([]ib.RecvWR{{}})
			return err
		}}})
		accepted := make(chan *rdmacm.Conn)
		go func() {
			for range 2 {
				c, err := l.Accept(ctx)
				if err != nil {
					t.Error(err)
				}
				accepted <- c
			}
		}()
		silent, err := mute.cm.Dial(ctx, l.Addr().String(), rdmacm.Config{})
		must(t, err)
		defer silent.Close()
		c, err := a.cm.Dial(ctx, l.Addr().String(), rdmacm.Config{})
		must(t, err)
		defer c.Close()
		s := <-accepted
		if s.RemoteAddr() != c.LocalAddr() {
			t.Errorf("accepted %v first, want %v", s.RemoteAddr(), c.LocalAddr())
		}
		defer s.Close()
		half := <-prepared
		_, err = silent.QP().PostSend([]ib.SendWR{{Opcode: ib.WRSend}})
		must(t, err)
		want(t, poll(t, half.RecvCQ()))
		half.DataArrived()
		half.DataArrived()
		s = <-accepted
		if s != half || s.RemoteAddr() != silent.LocalAddr() {
			t.Errorf("accepted %v second, want the one from %v", s.RemoteAddr(), silent.LocalAddr())
		}
		must(t, s.Close())
	})
}

// TestListenerClose: who waits in it, and who is in its backlog, learn of it.
func TestListenerClose(t *testing.T) {
	simulate(t, func(t *testing.T, a, b *node) {
		ctx := patience(t)
		l := listen(t, b, b.at("0"), rdmacm.ListenConfig{})
		dialled := make(chan error, 1)
		go func() { _, err := a.cm.Dial(ctx, l.Addr().String(), rdmacm.Config{}); dialled <- err }()
		r, err := l.Request(ctx)
		must(t, err)
		waiting := make(chan error, 2)
		go func() { _, err := l.Accept(ctx); waiting <- err }()
		go func() { _, err := l.Request(ctx); waiting <- err }()
		must(t, l.Close())
		must(t, l.Close())
		for range 2 {
			if err := <-waiting; !errors.Is(err, ib.ErrClosed) {
				t.Errorf("waited: %v, want %v", err, ib.ErrClosed)
			}
		}
		if err := <-dialled; !errors.Is(err, &rdmacm.RejectError{Reason: ib.RejectConsumer}) {
			t.Errorf("dialled: %v, want %v", err, ib.RejectConsumer)
		}
		if _, err := r.Accept(ctx, rdmacm.Config{}); !errors.Is(err, ib.ErrClosed) {
			t.Errorf("accepted: %v, want %v", err, ib.ErrClosed)
		}
		short, cancel := context.WithCancel(ctx)
		cancel()
		if _, err := listen(t, b, ":0", rdmacm.ListenConfig{}).Accept(short); !errors.Is(err, context.Canceled) {
			t.Errorf("cancelled: %v, want %v", err, context.Canceled)
		}
		if !a.cm.Idle() {
			t.Error("the dialler holds something")
		}
	})
}

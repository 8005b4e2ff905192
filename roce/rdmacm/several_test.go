package rdmacm_test

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/link/wrap"
	"github.com/goroce/goroce/roce/rdmacm"
	"github.com/goroce/goroce/roce/simtest"
	"github.com/goroce/goroce/tests/require"
	"github.com/goroce/goroce/wire"
)

// another opens one more connection manager on h's device.
func (h *node) another(t testing.TB) *node {
	t.Helper()
	c, err := rdmacm.Open(h.dev, rdmacm.Options{})
	must(t, err)
	t.Cleanup(func() { must(t, c.Close()) })
	return &node{dev: h.dev, cm: c, addr: h.addr}
}

// TestSeveralCMs: connection managers of one device know nothing of each other's
// connections, services and ends.
func TestSeveralCMs(t *testing.T) {
	simulate(t, func(t *testing.T, a1, b1 *node) {
		a2, b2 := a1.another(t), b1.another(t)
		ctx := patience(t)

		la1, la2 := listen(t, a1, ":7471", rdmacm.ListenConfig{}), listen(t, a2, ":7472", rdmacm.ListenConfig{})
		lb1, lb2 := listen(t, b1, ":0", rdmacm.ListenConfig{}), listen(t, b2, ":0", rdmacm.ListenConfig{})
		if lb1.Addr().Port() == lb2.Addr().Port() {
			t.Errorf("both listen on %v, want two ports", lb1.Addr())
		}
		type end struct{ client, server *rdmacm.Conn }
		ends := map[string]end{}
		for name, c := range map[string]struct {
			from, to *node
			l        *rdmacm.Listener
		}{
			"a1 to b1": {a1, b1, lb1}, "a1 to b2": {a1, b2, lb2}, "a2 to b1": {a2, b1, lb1}, "a2 to b2": {a2, b2, lb2},
			"b1 to a1": {b1, a1, la1}, "b1 to a2": {b1, a2, la2}, "b2 to a1": {b2, a1, la1}, "b2 to a2": {b2, a2, la2},
			"a1 to a2": {a1, a2, la2}, "a2 to a1": {a2, a1, la1}, "a1 to a1": {a1, a1, la1}, // on one device
		} {
			client, server := dialTo(t, c.from, c.l, c.to.at(port(c.l)), rdmacm.Config{})
			ends[name] = end{client, server}
		}

		for _, from := range []*node{a1, a2} {
			_, err := from.cm.Dial(ctx, b1.at("1"), rdmacm.Config{})
			if !errors.Is(err, &rdmacm.RejectError{Reason: ib.RejectInvalidServiceID}) {
				t.Errorf("dial where nobody listens: %v, want %v", err, ib.RejectInvalidServiceID)
			}
		}
		_, err := a2.cm.Listen(ctx, ":7471", rdmacm.ListenConfig{})
		if !errors.Is(err, ib.ErrAddrInUse) || !errors.Is(err, ib.ErrBusy) || !strings.Contains(err.Error(),
			"0x1061d2f") {
			t.Errorf("a port of the other's: %v, want %v, %v and %q", err, ib.ErrAddrInUse, ib.ErrBusy, "0x1061d2f")
		}
		must(t, la1.Close())
		must(t, listen(t, a2, ":7471", rdmacm.ListenConfig{}).Close())

		must(t, ends["a1 to b2"].client.Disconnect(ctx))
		<-ends["a1 to b2"].server.Done()
		must(t, ends["b1 to a2"].server.Disconnect(ctx))
		<-ends["b1 to a2"].client.Done()
		must(t, a2.cm.Close())
		for name, e := range ends {
			gone := strings.Contains(name, "a2") || name == "a1 to b2"
			for _, c := range []*rdmacm.Conn{e.client, e.server} {
				if gone {
					<-c.Done()
				} else if err := c.Err(); err != nil {
					t.Errorf("%s has ended: %v", name, err)
				}
			}
		}
	})
}

// TestPortByAddress: as with sockets, CMs of one device share a port if each listens at
// an address of its own, and get what is for theirs; one at all addresses has it alone.
func TestPortByAddress(t *testing.T) {
	simulate(t, func(t *testing.T, a, b1 *node) {
		b2, b3 := b1.another(t), b1.another(t)
		ctx := patience(t)
		const at4, at6, atAll = "192.0.2.2:7471", "[2001:db8::2]:7471", ":7471"
		l1, l2 := listen(t, b1, at4, rdmacm.ListenConfig{}), listen(t, b2, at6, rdmacm.ListenConfig{})
		for _, addr := range []string{at4, at6, atAll, "0.0.0.0:7471"} {
			if _, err := b3.cm.Listen(ctx, addr, rdmacm.ListenConfig{}); !errors.Is(err, ib.ErrAddrInUse) ||
				!errors.Is(err, ib.ErrBusy) {
				t.Errorf("listen on %s, beside others: %v, want %v and %v", addr, err, ib.ErrAddrInUse, ib.ErrBusy)
			}
		}
		for range 2 {
			for addr, l := range map[string]*rdmacm.Listener{at4: l1, at6: l2} {
				_, server := dialTo(t, a, l, addr, rdmacm.Config{})
				if server.LocalAddr() != addrPort(addr) {
					t.Errorf("the listener on %s got a connection to %v, want %v", addr, server.LocalAddr(),
						addrPort(addr))
				}
			}
		}
		must(t, l2.Close())
		if e := rejection(t, a, at6, rdmacm.Config{}); e.Reason != ib.RejectInvalidServiceID {
			t.Errorf("where nobody listens any more: %v, want %v", e, ib.RejectInvalidServiceID)
		}
		must(t, l1.Close())
		all := listen(t, b3, atAll, rdmacm.ListenConfig{})
		for _, h := range []*node{b1, b3} { // whoever has it
			if _, err := h.cm.Listen(ctx, at6, rdmacm.ListenConfig{}); !errors.Is(err, ib.ErrBusy) {
				t.Errorf("listen on %s, beside one on all: %v, want %v", at6, err, ib.ErrBusy)
			}
		}
		must(t, all.Close())
		listen(t, b1, at6, rdmacm.ListenConfig{})

		byID := rdmacm.ListenConfig{Config: rdmacm.Config{ServiceID: 1<<40 | 7}} // no port at all
		listen(t, b1, at4, byID)
		listen(t, b2, at6, byID)
		if _, err := b3.cm.Listen(ctx, at6, byID); !errors.Is(err, ib.ErrBusy) {
			t.Errorf("listen on another's service ID: %v, want %v", err, ib.ErrBusy)
		}
	})
}

// TestChosenPort: port 0 passes over the ports of others.
func TestChosenPort(t *testing.T) {
	simulate(t, func(t *testing.T, a, _ *node) {
		ch, err := a.dev.OpenCM()
		must(t, err)
		const first, end, free = 32768, 61000, 54321
		for p := first; p < end; p++ {
			if p != free {
				id, err := ch.CreateID(ib.CMIDInit{})
				must(t, err)
				must(t, id.Bind(netip.AddrPortFrom(netip.IPv6Unspecified(), uint16(p))))
			}
		}
		if l := listen(t, a, ":0", rdmacm.ListenConfig{}); l.Addr().Port() != free {
			t.Errorf("port %d, want %d", l.Addr().Port(), free)
		}
		if _, err := a.cm.Listen(patience(t), ":0", rdmacm.ListenConfig{}); !errors.Is(err, ib.ErrLimit) {
			t.Errorf("without a free port: %v, want %v", err, ib.ErrLimit)
		}
		must(t, ch.Close())
		listen(t, a, ":0", rdmacm.ListenConfig{})
	})
}

// TestSeveralDatagramServices: SIDR finds the services of each.
func TestSeveralDatagramServices(t *testing.T) {
	simulate(t, func(t *testing.T, a, b1 *node) {
		b2 := b1.another(t)
		ctx := patience(t)
		for i, b := range []*node{b1, b2} {
			l := listen(t, b, ":0", rdmacm.ListenConfig{Config: rdmacm.Config{Service: ib.UD}})
			qpn := newUD(t, b).qp.Num()
			answered := make(chan error, 1)
			go func() {
				r, err := l.Request(ctx)
				if err == nil {
					_, err = r.AcceptDatagram(qpn, 0, nil)
				}
				answered <- err
			}()
			s, err := a.cm.Resolve(ctx, b.at(port(l)), rdmacm.Config{})
			must(t, err)
			must(t, <-answered)
			if s.QPN != qpn {
				t.Errorf("service of CM %d: QP %d, want %d", i, s.QPN, qpn)
			}
		}
		_, err := a.cm.Resolve(ctx, b1.at("1"), rdmacm.Config{})
		if !errors.Is(err, &rdmacm.RejectError{Status: ib.SIDRUnsupported}) {
			t.Errorf("resolve where nobody listens: %v, want %v", err, ib.SIDRUnsupported)
		}
	})
}

// TestSeveralAtOnce opens a hundred connections at once, spread over two managers
// at each end, in both directions, with losses.
func TestSeveralAtOnce(t *testing.T) {
	c := simtest.Config{Seeds: 5, Fault: wrap.FaultConfig{Drop: 0.02, Duplicate: 0.02, Reorder: 0.02}}
	simulateOn(t, c, func(t *testing.T, hosts []*node) {
		a1, b1 := hosts[0], hosts[1]
		nodes := []*node{a1, a1.another(t), b1, b1.another(t)}
		const n = 100
		var waits []func()
		var addrs []string
		for _, h := range nodes {
			l := listen(t, h, h.at("0"), rdmacm.ListenConfig{Backlog: n})
			waits = append(waits, serve(t, l))
			addrs = append(addrs, l.Addr().String())
		}
		ctx := patience(t)
		conns := make([]*rdmacm.Conn, n)
		var dials sync.WaitGroup
		for i := range conns {
			from := i % 4
			to := (from/2 ^ 1) * 2 // of the other device
			dials.Go(func() {
				var err error
				if conns[i], err = nodes[from].cm.Dial(ctx, addrs[to+i/4%2], short); err != nil {
					t.Error(err)
				}
			})
		}
		dials.Wait()
		for _, c := range slices.DeleteFunc(conns, func(c *rdmacm.Conn) bool { return c == nil }) {
			dials.Go(func() {
				if err := errors.Join(c.Disconnect(ctx), c.Close()); err != nil {
					t.Error(err)
				}
			})
		}
		dials.Wait()
		for _, wait := range waits {
			wait()
		}
		for i, h := range nodes {
			require.Until(t, fmt.Sprintf("nothing is left on CM %d", i), h.cm.Idle)
			if s := h.cm.Stats(); s.Sent.Of(wire.AttrREQ) < n/4 || s.Sent.Of(wire.AttrREP) < n/4 || s.NoListener != 0 ||
				s.Stale != 0 {
				t.Errorf("CM %d: %+v; want at least %d REQs and REPs, none without listener or stale", i, s, n/4)
			}
		}
	})
}

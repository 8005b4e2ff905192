package device_test

import (
	"errors"
	"net/netip"
	"testing"
	"testing/synctest"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/internal/device"
)

// mostInHold is how many IDs may change while the connection manager's lock, for which the first shard waits, is held:
// those of a step, their requests, and the events of both.
const mostInHold = 4 * device.MaxHold

// service makes a listener for datagram requests.
func (c *cmEnd) service(port uint16) ib.CMID {
	c.w.t.Helper()
	id, err := c.ch.CreateID(ib.CMIDInit{Type: ib.UD})
	must(c.w.t, err)
	must(c.w.t, id.Bind(netip.AddrPortFrom(netip.IPv6Unspecified(), port)))
	must(c.w.t, id.Listen(0))
	return id
}

// dial asks n times for a datagram service of a host.
func (c *cmEnd) dial(to *host, n int) {
	c.w.t.Helper()
	for range n {
		id, err := c.ch.CreateID(ib.CMIDInit{Type: ib.UD})
		must(c.w.t, err)
		must(c.w.t, id.ResolveAddr(netip.AddrPort{}, netip.AddrPortFrom(to.gid().Addr(), 7471), 0))
		must(c.w.t, id.ResolveRoute(0))
		must(c.w.t, id.Connect(ib.CMConnParam{}))
	}
	for {
		if _, err := c.ch.NextEvent(over); err != nil {
			break
		}
	}
}

// many is more IDs than may change in one hold.
const many = 20 * device.MaxHold

// cmHolds are calls that change many IDs.
var cmHolds = []struct {
	name string
	call func(t *testing.T, w *world, a, b *cmEnd)
}{
	{"a channel of listeners is closed", func(t *testing.T, w *world, a, b *cmEnd) {
		for i := range many {
			a.listen(uint16(2000+i), 0)
		}
		must(t, a.ch.Close())
	}},
	{"a channel of connections is closed", func(t *testing.T, w *world, a, b *cmEnd) {
		b.listen(7471, 0)
		for range many / 4 {
			id := a.resolved(b.h, 7471)
			must(t, id.Connect(a.param()))
			must(t, b.next(ib.CMConnectRequest).ID.Accept(b.param()))
			a.next(ib.CMConnectResponse)
			must(t, id.Establish())
			b.next(ib.CMEstablished)
		}
		must(t, a.ch.Close())
		if n := len(b.events()); n != many/4 {
			t.Errorf("the peer was told of the end of %d connections, want %d", n, many/4)
		}
	}},
	{"a listener with a backlog is closed", func(t *testing.T, w *world, a, b *cmEnd) {
		l := b.service(7471)
		a.dial(b.h, many/2)
		w.settle()
		must(t, l.Close())
	}},
	{"a listener with a backlog moves to another channel", func(t *testing.T, w *world, a, b *cmEnd) {
		l := b.service(7471)
		a.dial(b.h, many/2)
		w.settle()
		must(t, l.Migrate(w.newCM(b.h).ch))
	}},
	{"an address goes", func(t *testing.T, w *world, a, b *cmEnd) {
		for range many {
			must(t, a.id().Bind(netip.AddrPortFrom(gidA.Addr(), 0)))
		}
		must(t, a.h.dev.SetAddresses([]ib.GID{ib.GIDFromAddr(netip.MustParseAddr("192.0.2.77"))}))
		if n := len(a.events()); n != many {
			t.Errorf("%d IDs were told that their address is gone, want %d", n, many)
		}
	}},
	{"all IDs that dial a peer are told by ICMP that it is unreachable", func(t *testing.T, w *world, a, b *cmEnd) {
		a.dial(b.h, many)
		for range 1000 {
			a.h.dev.Unreachable(gidB, 111)
		}
		if n := len(a.events()); n != many {
			t.Errorf("%d IDs were told, want %d", n, many)
		}
	}},
	{"requests that nobody answers are repeated", func(t *testing.T, w *world, a, b *cmEnd) {
		a.dial(b.h, many)
		for end := w.now + 60e9; w.now < end && w.advance(); {
		}
	}},
}

// TestCMHolds: no call holds the lock of the connection manager for a number of IDs that an application chooses.
func TestCMHolds(t *testing.T) {
	for _, x := range cmHolds {
		t.Run(x.name, func(t *testing.T) {
			w := newWorld(t, 1, 64, plain)
			a, b := w.newCM(w.a), w.newCM(w.b)
			x.call(t, w, a, b)
			for _, h := range []*host{w.a, w.b} {
				if n := h.dev.CMLongestHold(); n > mostInHold {
					t.Errorf("%v: %d IDs changed in one hold of the lock, want at most %d", h.gid().Addr(), n,
						mostInHold)
				}
			}
		})
	}
}

// TestCMRepeatedCalls: an ID that repeats a call and reads no events has one unread event of it, whatever the call.
func TestCMRepeatedCalls(t *testing.T) {
	elsewhere := netip.MustParseAddrPort("[2001:db8::1]:7471") // the device has no IPv6 address
	group := netip.MustParseAddr("239.1.1.1")
	for _, x := range []struct {
		name string
		call func(t *testing.T, w *world, a *cmEnd, id ib.CMID)
		want int // events in all
	}{
		{"ResolveAddr to a family that the device lacks", func(t *testing.T, w *world, a *cmEnd, id ib.CMID) {
			must(t, id.ResolveAddr(netip.AddrPort{}, elsewhere, 0))
		}, 1},
		{"ResolveRoute without a route", func(t *testing.T, w *world, a *cmEnd, id ib.CMID) {
			to := netip.AddrPortFrom(gidB.Addr(), 7471)
			if err := id.ResolveAddr(netip.AddrPort{}, to, 0); err != nil && !errors.Is(err, ib.ErrState) {
				t.Fatal(err)
			}
			must(t, id.ResolveRoute(0))
			synctest.Wait()
		}, 2},
		{"JoinMulticast and LeaveMulticast", func(t *testing.T, w *world, a *cmEnd, id ib.CMID) {
			if err := id.Bind(netip.AddrPortFrom(gidA.Addr(), 0)); err != nil && !errors.Is(err, ib.ErrState) {
				t.Fatal(err)
			}
			must(t, id.JoinMulticast(group))
			must(t, id.LeaveMulticast(group))
		}, 0},
		{"the loss of its address", func(t *testing.T, w *world, a *cmEnd, id ib.CMID) {
			if err := id.Bind(netip.AddrPortFrom(gidA.Addr(), 0)); err != nil && !errors.Is(err, ib.ErrState) {
				t.Fatal(err)
			}
			must(t, a.h.dev.SetAddresses([]ib.GID{ib.GIDFromAddr(netip.MustParseAddr("192.0.2.77"))}))
			must(t, a.h.dev.SetAddresses([]ib.GID{gidA}))
		}, 1},
	} {
		t.Run(x.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := &world{t: t, a: newTargetWith(t, device.Options{Manual: true,
					Route: func(_, _ netip.Addr, _ ib.MTU) (ib.MTU, int) { return 0, 101 }}).host}
				a := w.newCM(w.a)
				id, err := a.ch.CreateID(ib.CMIDInit{Type: ib.UD})
				must(t, err)
				for range 100 {
					x.call(t, w, a, id)
				}
				n := 0
				for ; ; n++ {
					if _, err := a.ch.NextEvent(over); err != nil {
						break
					}
				}
				if n != x.want {
					t.Errorf("%d unread events, want %d", n, x.want)
				}
			})
		})
	}
}

// TestCMShares: an owner that must be fair gets no more connections and dynamic ports than stay free for others, also
// of connections that end without their IDs.
func TestCMShares(t *testing.T) {
	w := newWorld(t, 1, 64, plain)
	open := func(fair bool) *cmEnd { return w.asTenant(w.a, device.CMLimits{IDs: 1 << 20, Fair: fair}, nil) }
	greedy, other := open(true), open(true)
	bind := func(c *cmEnd) error { return c.id().Bind(netip.AddrPortFrom(gidA.Addr(), 0)) }
	n := 0
	for bind(greedy) == nil {
		n++
	}
	if most := (61000 - 32768) / 2; n != most {
		t.Errorf("one owner has %d dynamic ports, want half of them, %d", n, most)
	}
	if err := bind(greedy); !errors.Is(err, ib.ErrNoPort) {
		t.Errorf("a port more is %v, want ErrNoPort", err)
	}
	must(t, bind(other))
	must(t, greedy.ch.Close())
	must(t, bind(other))

	// What is disconnected stays in timewait.
	a, b := open(true), w.newCM(w.b)
	b.listen(7471, 0)
	for range 10 {
		id := a.resolved(b.h, 7471)
		must(t, id.Connect(a.param()))
		all := b.events() // also of the connection before
		must(t, all[len(all)-1].ID.Accept(b.param()))
		a.next(ib.CMConnectResponse)
		must(t, id.Establish())
		must(t, id.Close())
	}
	if held := w.a.dev.CMHeld(a.ch); held != 10 {
		t.Errorf("after the end of their IDs %d connections count for their owner, want 10", held)
	}
	w.nothingLeft()
	if held := w.a.dev.CMHeld(a.ch); held != 0 {
		t.Errorf("when nothing is left of them %d connections count for their owner, want 0", held)
	}
}

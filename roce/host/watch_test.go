package host

import (
	"context"
	"fmt"
	"net/netip"
	"runtime"
	"testing"
	"time"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce"
	"github.com/goroce/goroce/roce/neigh"
	"github.com/goroce/goroce/tests/linktest"
	"github.com/goroce/goroce/tests/require"
)

func TestPortState(t *testing.T) {
	held := addrs("192.0.2.1")
	for _, tt := range []struct {
		state neigh.LinkState
		want  ib.PortState
	}{
		{neigh.LinkState{Up: true, MTU: 1500, Addrs: held}, ib.PortActive},
		{neigh.LinkState{Up: true, MTU: 1500}, ib.PortDown}, // no address is left
		{neigh.LinkState{MTU: 1500, Addrs: held}, ib.PortDown},
		{neigh.LinkState{}, ib.PortDown},
	} {
		if got := portState(tt.state); got != tt.want {
			t.Errorf("%+v makes %v, want %v", tt.state, got, tt.want)
		}
	}
}

func TestPhysState(t *testing.T) {
	for _, tt := range []struct {
		state neigh.LinkState
		want  ib.PhysState
	}{
		{neigh.LinkState{Enabled: true, Up: true}, ib.PhysLinkUp},
		{neigh.LinkState{Enabled: true}, ib.PhysPolling},
		{neigh.LinkState{}, ib.PhysDisabled},
	} {
		if got := physState(tt.state); got != tt.want {
			t.Errorf("%+v makes %v, want %v", tt.state, got, tt.want)
		}
	}
}

// wantEvent waits for an event. GID changes may come before another one: Linux takes
// IPv6 addresses from an interface that goes down.
func wantEvent(t *testing.T, dev ib.Device, want ib.EventType) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for {
		ev, err := dev.NextEvent(ctx)
		if err == nil && ev.Type == want {
			return
		}
		if err != nil || ev.Type != ib.EventGIDChange {
			t.Fatalf("event %v, error %v; want %v", ev.Type, err, want)
		}
	}
}

// wantPort waits for an event and looks at the port.
func wantPort(t *testing.T, dev roce.Device, event ib.EventType, state ib.PortState) {
	t.Helper()
	wantEvent(t, dev, event)
	if p, err := dev.QueryPort(1); err != nil || p.State != state {
		t.Errorf("after event %v the port is %v, %v; want %v", event, p.State, err, state)
	}
}

// TestPortEvents: the port follows the interface and its carrier, from the start.
func TestPortEvents(t *testing.T) {
	for _, name := range []string{"udp", "rawsock"} {
		t.Run(name, func(t *testing.T) {
			nsA, nsB := linktest.NewVeth(t, 1500)
			open := func(ns *linktest.Namespace, a netip.Addr) roce.Device {
				return openIn(t, ns, Options{Link: name, Addrs: []netip.Addr{a}})
			}
			a, b := open(nsA, nsA.Addr4), open(nsB, nsB.Addr4)
			if p, err := a.QueryPort(1); err != nil || p.State != ib.PortActive || p.PhysState != ib.PhysLinkUp ||
				p.Speed != 10000 {
				t.Fatalf("at first the port is %v, %v, %d Mb/s, %v; want %v, %v and 10000", p.State, p.PhysState,
					p.Speed, err, ib.PortActive, ib.PhysLinkUp)
			}
			nsA.Command(t, "ip", "link", "set", nsA.IfName, "down")
			wantPort(t, a, ib.EventPortErr, ib.PortDown)
			wantPort(t, b, ib.EventPortErr, ib.PortDown) // for want of a carrier
			if p, err := b.QueryPort(1); err != nil || p.PhysState != ib.PhysPolling {
				t.Errorf("without a carrier the link is %v, %v; want %v", p.PhysState, err, ib.PhysPolling)
			}

			nsB.Command(t, "ip", "addr", "add", "10.99.0.9/24", "dev", nsB.IfName)
			late := open(nsB, netip.MustParseAddr("10.99.0.9"))
			wantPort(t, late, ib.EventPortErr, ib.PortDown)

			nsA.Command(t, "ip", "link", "set", nsA.IfName, "up")
			wantPort(t, a, ib.EventPortActive, ib.PortActive)
			wantPort(t, b, ib.EventPortActive, ib.PortActive)
			wantPort(t, late, ib.EventPortActive, ib.PortActive)

			x, y := newSide(t, a), newSide(t, b)
			x.connect(t, y, 0)
			y.connect(t, x, 0)
			if err := write(t, x, y); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestNetIfMadeAgain: a device is down while its interface does not exist, and goes on with one
// that is made under the same name: connections, groups and new addresses.
func TestNetIfMadeAgain(t *testing.T) {
	for _, c := range []struct {
		link   string
		byName bool
	}{{"udp", false}, {"udp", true}, {"rawsock", false}, {"rawsock", true}} {
		t.Run(fmt.Sprintf("%s/by name %v", c.link, c.byName), func(t *testing.T) {
			nsA, nsB := linktest.NewVeth(t, 1500)
			heard := make(chan int, 100)
			open := func(ns *linktest.Namespace) roce.Device {
				o := Options{Link: c.link, NetIf: ns.IfName, OnNetIf: func(_ string, index int) { heard <- index }}
				if !c.byName {
					o.NetIf, o.Addrs = "", []netip.Addr{ns.Addr4}
				}
				return openIn(t, ns, o)
			}
			a, b := open(nsA), open(nsB)
			x, y := over(t, a, b, nsA.Addr4, nsB.Addr4)
			exchange(t, x, y)
			for range 2 {
				nsA.Command(t, "ip", "link", "del", nsA.IfName) // and its peer's
				wantPort(t, a, ib.EventPortErr, ib.PortDown)
				wantPort(t, b, ib.EventPortErr, ib.PortDown)
				linktest.MakeVeth(t, nsA, nsB, 1500)
				wantPort(t, a, ib.EventPortActive, ib.PortActive)
				wantPort(t, b, ib.EventPortActive, ib.PortActive)
				exchange(t, x, y)
				for _, made := range []bool{false, false, true, true} {
					if index := <-heard; made != (index != 0) {
						t.Errorf("index %d is told, made again: %v, want one if made", index, made)
					}
				}
			}
		})
	}
}

// TestNetIfRenamed: a device says the name that its interface has now.
func TestNetIfRenamed(t *testing.T) {
	ns, _ := linktest.NewVeth(t, 1500)
	dev := openIn(t, ns, Options{Addrs: []netip.Addr{ns.Addr4}})
	for _, name := range []string{"renamed0", ns.IfName} {
		old := ns.IfName
		if name == old {
			old = "renamed0"
		}
		ns.Command(t, "ip", "link", "set", old, "down")
		ns.Command(t, "ip", "link", "set", old, "name", name)
		ns.Command(t, "ip", "link", "set", name, "up")
		require.Until(t, "the port and its addresses are on "+name, func() bool {
			port, err := dev.QueryPort(1)
			gids, gidErr := dev.GIDs(1)
			return err == nil && gidErr == nil && port.NetIf == name && len(gids) > 0 && gids[0].NetIf == name
		})
	}
}

// TestCloseEndsWatch: nothing stays behind.
func TestCloseEndsWatch(t *testing.T) {
	before := runtime.NumGoroutine()
	for range 5 {
		dev := openDevice(t, Options{Addrs: []netip.Addr{linktest.Loopback()}})
		if err := dev.Close(); err != nil {
			t.Fatal(err)
		}
	}
	require.Until(t, fmt.Sprintf("at most %d goroutines, as before", before), func() bool {
		return runtime.NumGoroutine() <= before
	})
}

package host

import (
	"context"
	"net/netip"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce"
	"github.com/goroce/goroce/roce/link/linktest"
	"github.com/goroce/goroce/roce/neigh"
)

func TestPortState(t *testing.T) {
	for s, want := range map[neigh.LinkState]ib.PortState{
		{Up: true, MTU: 1500, Held: 2}: ib.PortActive,
		{Up: true, MTU: 1500, Held: 1}: ib.PortActive,
		{Up: true, MTU: 1500}:          ib.PortDown, // no address is left
		{MTU: 1500, Held: 2}:           ib.PortDown,
		{}:                             ib.PortDown,
	} {
		if got := portState(s); got != want {
			t.Errorf("%+v makes %v, want %v", s, got, want)
		}
	}
}

// wantPort waits for an event and looks at the port.
func wantPort(t *testing.T, dev *roce.Device, event ib.EventType, state ib.PortState) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	ev, err := dev.NextEvent(ctx)
	if err != nil || ev.Type != event {
		t.Fatalf("event %v, error %v; want %v", ev.Type, err, event)
	}
	if p, err := dev.QueryPort(1); err != nil || p.State != state {
		t.Errorf("after event %v the port is %v, %v; want %v", event, p.State, err, state)
	}
}

// TestPortEvents: the port follows the interface and its carrier, from the start.
func TestPortEvents(t *testing.T) {
	for _, name := range []string{"udp", "rawsock"} {
		t.Run(name, func(t *testing.T) {
			nsA, nsB := linktest.NewVeth(t, 1500)
			a, b := openIn(t, nsA, Options{Link: name}), openIn(t, nsB, Options{Link: name})
			if p, err := a.QueryPort(1); err != nil || p.State != ib.PortActive {
				t.Fatalf("at first the port is %v, %v", p.State, err)
			}
			nsA.Command(t, "ip", "link", "set", nsA.IfName, "down")
			wantPort(t, a, ib.EventPortErr, ib.PortDown)
			wantPort(t, b, ib.EventPortErr, ib.PortDown) // for want of a carrier

			nsB.Command(t, "ip", "addr", "add", "10.99.0.9/24", "dev", nsB.IfName)
			late := openIn(t, nsB, Options{Link: name, Addrs: addrs("10.99.0.9")})
			wantPort(t, late, ib.EventPortErr, ib.PortDown)

			nsA.Command(t, "ip", "link", "set", nsA.IfName, "up")
			wantPort(t, a, ib.EventPortActive, ib.PortActive)
			wantPort(t, b, ib.EventPortActive, ib.PortActive)
			wantPort(t, late, ib.EventPortActive, ib.PortActive)

			gid := slices.Index(a.Link().Local, ib.GIDFromAddr(nsA.Addr4))
			x, y := newSide(t, a), newSide(t, b)
			x.connect(t, y, gid)
			y.connect(t, x, gid)
			if err := write(t, x, y); err != nil {
				t.Error(err)
			}
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
	for end := time.Now().Add(20 * time.Second); runtime.NumGoroutine() > before; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d goroutines, %d before", runtime.NumGoroutine(), before)
		}
	}
}

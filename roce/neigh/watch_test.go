package neigh_test

import (
	"errors"
	"net/netip"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/goroce/goroce/roce/neigh"
	"github.com/goroce/goroce/tests/linktest"
	"github.com/goroce/goroce/tests/require"
)

// watch watches for the time of the test.
func watch(t *testing.T, name string, addrs ...netip.Addr) <-chan neigh.LinkState {
	t.Helper()
	states := make(chan neigh.LinkState, 100)
	stop, err := neigh.WatchLink(name, addrs, func(s neigh.LinkState) error { states <- s; return nil })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	return states
}

// same leaves out the index, which the kernel chooses, and the name, which the test does.
var same = []cmp.Option{cmpopts.EquateEmpty(), cmpopts.EquateComparable(netip.Addr{}),
	cmpopts.IgnoreFields(neigh.LinkState{}, "Index", "Name")}

// await returns when a state comes; those before it may be on the way to it.
func await(t *testing.T, what string, states <-chan neigh.LinkState, want neigh.LinkState) {
	t.Helper()
	var got neigh.LinkState
	for end := time.After(patience); ; {
		select {
		case got = <-states:
			if cmp.Equal(got, want, same...) {
				return
			}
		case <-end:
			t.Fatalf("%s: the last state is %+v, want %+v", what, got, want)
		}
	}
}

func TestWatchLink(t *testing.T) {
	a, b := linktest.NewVeth(t, 1500)
	var states <-chan neigh.LinkState
	six, later := a.Addr6.WithZone(a.IfName), netip.MustParseAddr("10.99.0.77")
	_ = a.Do(func() error {
		states = watch(t, a.IfName, six, later, a.Addr4)
		return nil
	})
	if len(states) != 1 {
		t.Fatalf("%d states are told at first, want 1", len(states))
	}
	const speed = 10000 // of the driver of veth
	up := neigh.LinkState{Enabled: true, Up: true, Speed: speed, MTU: 1500, Addrs: []netip.Addr{six, a.Addr4}}
	await(t, "at first", states, up)
	// The kernel takes the IPv6 addresses of an interface that goes down.
	down := neigh.LinkState{Speed: speed, MTU: 1500, Addrs: []netip.Addr{a.Addr4}}
	a.Command(t, "ip", "link", "set", a.IfName, "down")
	await(t, "down", states, down)
	a.Command(t, "ip", "link", "set", a.IfName, "up")
	up.Addrs = down.Addrs
	await(t, "up", states, up)
	b.Command(t, "ip", "link", "set", b.IfName, "down")
	down.Enabled = true
	await(t, "no carrier", states, down)
	b.Command(t, "ip", "link", "set", b.IfName, "up")
	await(t, "carrier", states, up)
	a.Command(t, "ip", "link", "set", a.IfName, "mtu", "1400")
	up.MTU = 1400
	await(t, "MTU", states, up)
	a.Command(t, "ip", "addr", "del", a.Addr4.String()+"/24", "dev", a.IfName)
	up.Addrs = nil
	await(t, "address removed", states, up)
	a.Command(t, "ip", "addr", "add", "10.99.0.77/24", "dev", a.IfName)
	up.Addrs = []netip.Addr{later}
	await(t, "address added", states, up)
	a.Command(t, "ip", "link", "del", a.IfName)
	await(t, "gone", states, neigh.LinkState{})
	if len(states) > 0 {
		t.Errorf("after the end: %+v, want nothing", <-states)
	}
}

// An interface that is deleted and made again is followed by its name, whether addresses are
// named or not, and is seen to be gone in between.
func TestWatchMadeAgain(t *testing.T) {
	a, b := linktest.NewVeth(t, 1500)
	var given, all <-chan neigh.LinkState
	_ = a.Do(func() error {
		given, all = watch(t, a.IfName, a.Addr4), watch(t, a.IfName)
		return nil
	})
	want := neigh.LinkState{Enabled: true, Up: true, Speed: 10000, MTU: 1500, Addrs: []netip.Addr{a.Addr4}}
	await(t, "at first", given, want)
	first := (<-all).Index
	for range 3 {
		a.Command(t, "ip", "link", "del", a.IfName)
		linktest.MakeVeth(t, a, b, 1500)
		await(t, "gone", given, neigh.LinkState{})
		await(t, "there again", given, want)
		await(t, "gone", all, neigh.LinkState{})
		for s := awaitAddr(t, all, a.Addr4); s.Index == first || s.Index == 0; {
			t.Fatalf("the interface has index %d, want %d as before", s.Index, first)
		}
	}
}

// Who names no address watches all of the interface: those that can be used.
func TestWatchAllAddresses(t *testing.T) {
	a, _ := linktest.NewVeth(t, 1500)
	var states <-chan neigh.LinkState
	_ = a.Do(func() error { states = watch(t, a.IfName); return nil })
	first := <-states
	for _, want := range []netip.Addr{a.Addr4, a.Addr6} {
		if !slices.Contains(first.Addrs, want) {
			t.Errorf("at first %v, want %v there", first.Addrs, want)
		}
	}
	if len(first.Addrs) != 3 || slices.ContainsFunc(first.Addrs,
		func(a netip.Addr) bool { return a.Zone() != "" || a.IsLoopback() }) {
		t.Errorf("at first %v, want three without zones, none of another interface", first.Addrs)
	}
}

// An address that duplicate address detection has not passed yet is not told. It begins
// when there is a carrier.
func TestWatchTentative(t *testing.T) {
	four, six := netip.MustParseAddr("10.99.0.77"), netip.MustParseAddr("fd99::77")
	for name, addrs := range map[string][]netip.Addr{"all": nil, "given": {six, four}} {
		t.Run(name, func(t *testing.T) {
			a, b := linktest.NewVeth(t, 1500)
			b.Command(t, "ip", "link", "set", b.IfName, "down")
			var states <-chan neigh.LinkState
			_ = a.Do(func() error { states = watch(t, a.IfName, addrs...); return nil })
			a.Command(t, "sysctl", "-qw", "net.ipv6.conf."+a.IfName+".accept_dad=1",
				"net.ipv6.conf."+a.IfName+".dad_transmits=1")
			a.Command(t, "ip", "addr", "add", six.String()+"/64", "dev", a.IfName)
			a.Command(t, "ip", "addr", "add", four.String()+"/24", "dev", a.IfName)
			if s := awaitAddr(t, states, four); slices.Contains(s.Addrs, six) {
				t.Errorf("%v is told while there is no carrier", six)
			}
			b.Command(t, "ip", "link", "set", b.IfName, "up")
			awaitAddr(t, states, six)
		})
	}
}

// awaitAddr returns the first state with an address.
func awaitAddr(t *testing.T, states <-chan neigh.LinkState, a netip.Addr) neigh.LinkState {
	t.Helper()
	for end := time.After(patience); ; {
		select {
		case s := <-states:
			if slices.Contains(s.Addrs, a) {
				return s
			}
		case <-end:
			t.Fatalf("%v is not told", a)
		}
	}
}

// Who cannot use a state is told again with the next event, be it of another interface.
func TestWatchAgain(t *testing.T) {
	a, _ := linktest.NewVeth(t, 1500)
	states := make(chan neigh.LinkState, 100)
	calls := 0
	_ = a.Do(func() error {
		stop, err := neigh.WatchLink(a.IfName, nil, func(s neigh.LinkState) error {
			states <- s
			if calls++; calls < 3 {
				return errors.New("not yet")
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(stop)
		return nil
	})
	want := <-states
	for range 2 {
		a.Command(t, "ip", "addr", "add", "127.9.9.9/8", "dev", "lo")
		await(t, "another interface has an address", states, want)
		a.Command(t, "ip", "addr", "del", "127.9.9.9/8", "dev", "lo")
	}
}

// Who watches needs no privilege, and nothing stays behind.
func TestWatchLinkStop(t *testing.T) {
	before := runtime.NumGoroutine()
	for range 10 {
		calls := 0
		stop, err := neigh.WatchLink("lo", []netip.Addr{netip.MustParseAddr("127.9.9.9")},
			func(s neigh.LinkState) error {
				if calls++; !s.Up || s.MTU < 1500 || len(s.Addrs) != 1 {
					t.Errorf("loopback is %+v, want it up with one address", s)
				}
				return nil
			})
		if err != nil {
			t.Fatal(err)
		}
		stop()
		stop()
		if calls != 1 {
			t.Errorf("%d states told, want 1", calls)
		}
	}
	require.Until(t, "the end of all goroutines", func() bool { return runtime.NumGoroutine() <= before })
	if _, err := neigh.WatchLink("nosuch0", nil, func(neigh.LinkState) error { return nil }); err == nil {
		t.Error("an interface that is not there can be watched")
	}
}

// Once stop has returned no call is under way.
func TestWatchLinkStopWaits(t *testing.T) {
	a, _ := linktest.NewVeth(t, 1500)
	called, goOn := make(chan struct{}), make(chan struct{})
	var over atomic.Bool
	var stop func()
	err := a.Do(func() (err error) {
		stop, err = neigh.WatchLink(a.IfName, nil, func(s neigh.LinkState) error {
			if s.MTU == 1400 {
				close(called)
				<-goOn
				over.Store(true)
			}
			return nil
		})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	a.Command(t, "ip", "link", "set", a.IfName, "mtu", "1400")
	<-called
	time.AfterFunc(10*time.Millisecond, func() { close(goOn) })
	if stop(); !over.Load() {
		t.Error("stop does not wait for the call")
	}
}

// A namespace is found again from a thread of another.
func TestNamespace(t *testing.T) {
	a, _ := linktest.NewVeth(t, 1500)
	var ns neigh.Namespace
	_ = a.Do(func() error { ns = neigh.CurrentNamespace(); return nil })
	defer ns.Close()
	holding := func() error { _, err := neigh.Holding(a.Addr6); return err }
	if err := holding(); err == nil {
		t.Fatalf("%v is held outside of the namespace; the test wants one that is not", a.Addr6)
	}
	if err := ns.Do(holding); err != nil {
		t.Errorf("back in the namespace: %v", err)
	}
	if err := a.Do(func() error { return ns.Do(holding) }); err != nil {
		t.Errorf("from the namespace itself: %v", err)
	}
	if err := holding(); err == nil {
		t.Error("the calling thread has moved")
	}
}

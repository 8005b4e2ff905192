package conformance

import (
	"net/netip"
	"testing"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce"
	"github.com/goroce/goroce/roce/link"
	"github.com/goroce/goroce/roce/link/afxdp"
	"github.com/goroce/goroce/roce/link/linktest"
	"github.com/goroce/goroce/roce/link/mem"
	"github.com/goroce/goroce/roce/link/rawsock"
	"github.com/goroce/goroce/roce/link/udp"
	"github.com/goroce/goroce/roce/link/wrap"
	"github.com/goroce/goroce/tests/rxe/lab"
)

func TestMain(m *testing.M) { lab.Main(m) }

// open makes a software device on a link, for as long as the test runs.
func open(t *testing.T, l link.Link, err error) Party {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	dev, err := roce.Open(wrap.Seal(wrap.Turn(l)), roce.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := dev.Close(); err != nil {
			t.Error(err)
		}
	})
	return Party{Device: dev, Kind: "goroce"}
}

// runPair runs all of the suite: the software device has what any case can ask for.
func runPair(t *testing.T, here, there Party) {
	t.Helper()
	for i := range cases {
		if lack := (cases[i].Needs.Active | cases[i].Needs.Passive) &^ here.Device.Attr().Caps; lack != 0 {
			t.Fatalf("the software device lacks %s", capText(lack))
		}
	}
	RunPair(t, here, there, Options{})
}

// TestMem pairs devices in memory: of IPv4 with the MTU of Ethernet, of IPv6 with
// that of path MTU 4096.
func TestMem(t *testing.T) {
	for _, f := range []struct {
		name, a, b string
		mtu        int
	}{{"IPv4", "192.0.2.1", "192.0.2.2", 1500}, {"IPv6", "2001:db8::1", "2001:db8::2", mem.DefaultMTU}} {
		t.Run(f.name, func(t *testing.T) {
			network := mem.NewNetwork()
			at := func(s string) Party {
				return open(t, network.Open([]ib.GID{ib.GIDFromAddr(netip.MustParseAddr(s))}, mem.Options{MTU: f.mtu}), nil)
			}
			runPair(t, at(f.a), at(f.b))
		})
	}
}

func loopback(t *testing.T) Party {
	t.Helper()
	return loopbackWith(t, udp.OffloadAuto)
}

func loopbackWith(t *testing.T, o udp.Offload) Party {
	t.Helper()
	l, err := udp.Open([]netip.Addr{linktest.Loopback()}, udp.Options{Offload: o})
	return open(t, l, err)
}

// TestUDP pairs devices on the loopback interface, without privileges.
func TestUDP(t *testing.T) {
	for name, o := range map[string]udp.Offload{"offload": udp.OffloadAuto, "frame by frame": udp.OffloadOff} {
		t.Run(name, func(t *testing.T) { runPair(t, loopbackWith(t, o), loopbackWith(t, o)) })
	}
}

// TestSelf plays both halves on one device: its queue pairs talk to each other
// through the device's own address.
func TestSelf(t *testing.T) {
	p := loopback(t)
	runPair(t, p, p)
}

// driver opens a link of some kind.
type driver struct {
	name string
	open func([]netip.Addr) (link.Link, error)
}

func rawsockWith(o rawsock.Offload) func([]netip.Addr) (link.Link, error) {
	return func(a []netip.Addr) (link.Link, error) { return rawsock.Open(a, rawsock.Options{Offload: o}) }
}

func afxdpWith(o afxdp.Options) func([]netip.Addr) (link.Link, error) {
	return func(a []netip.Addr) (link.Link, error) { return afxdp.Open(a, o) }
}

// onVeth opens a device at each end of a pair of interfaces, in two network
// namespaces.
func onVeth(t *testing.T, d driver) (here, there Party) {
	t.Helper()
	a, b := linktest.NewVeth(t, 1500)
	at := func(n *linktest.Namespace) (p Party) {
		var l link.Link
		err := n.Do(func() (err error) {
			l, err = d.open([]netip.Addr{n.Addr4, n.Addr6})
			return err
		})
		return open(t, l, err)
	}
	return at(a), at(b)
}

// TestVeth pairs devices in two network namespaces.
func TestVeth(t *testing.T) {
	for _, d := range []driver{
		{"udp", func(a []netip.Addr) (link.Link, error) { return udp.Open(a, udp.Options{}) }},
		{"rawsock", rawsockWith(rawsock.OffloadAuto)},
		{"rawsock, frame by frame", rawsockWith(rawsock.OffloadOff)},
		{"afxdp, native", afxdpWith(afxdp.Options{})},
		{"afxdp, generic", afxdpWith(afxdp.Options{Generic: true})},
	} {
		t.Run(d.name, func(t *testing.T) {
			here, there := onVeth(t, d)
			for row, family := range []string{"IPv4", "IPv6"} {
				here.GIDIndex, there.GIDIndex = row, row
				t.Run(family, func(t *testing.T) { runPair(t, here, there) })
			}
		})
	}
}

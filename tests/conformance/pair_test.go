package conformance

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce"
	"github.com/goroce/goroce/roce/link"
	"github.com/goroce/goroce/roce/link/afxdp"
	"github.com/goroce/goroce/roce/link/mem"
	"github.com/goroce/goroce/roce/link/rawsock"
	"github.com/goroce/goroce/roce/link/udp"
	"github.com/goroce/goroce/roce/link/wrap"
	"github.com/goroce/goroce/tests/linktest"
	"github.com/goroce/goroce/tests/require"
)

// open makes a software device on a link, for as long as the test runs.
func open(t *testing.T, l link.Link, err error) Party {
	t.Helper()
	return openShards(t, []link.Link{l}, err)
}

// openShards is open for a device of as many shards as there are links.
func openShards(t *testing.T, links []link.Link, err error) Party {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	for i, l := range links {
		links[i] = wrap.Seal(linktest.Verify(t, wrap.Loopback(l)))
	}
	dev, err := roce.OpenShards(links, roce.Options{})
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

// repeats ends a test, in a plain run, of a pair whose parts other pairs have too.
func repeats(t *testing.T, is bool) {
	t.Helper()
	if is {
		require.FullRun(t, "other pairs play these parts, too")
	}
}

// parts is how many parts of the suite are played at a time: a case mostly waits.
const parts = 4

// runPair runs the suite: the software device has what any case can ask for. Each part has a pair of devices. A plain
// run plays each second case, as TestSimulated plays all of them.
func runPair(t *testing.T, open func(t *testing.T) (here, there Party)) {
	t.Helper()
	for n := range parts {
		t.Run(fmt.Sprintf("part %d", n), func(t *testing.T) {
			t.Parallel()
			here, there := open(t)
			for i := range cases {
				if lack := (cases[i].Needs.Active | cases[i].Needs.Passive) &^ here.Device.Attr().Caps; lack != 0 {
					t.Fatalf("the software device lacks %s", capText(lack))
				}
			}
			RunPair(t, here, there, Options{Part: Part{n, require.Rounds(2, 1) * parts}})
		})
	}
}

func loopback(t *testing.T, shards int) Party {
	t.Helper()
	return loopbackWith(t, udp.OffloadAuto, shards)
}

func loopbackWith(t *testing.T, o udp.Offload, shards int) Party {
	t.Helper()
	links, err := udp.OpenShards([]netip.Addr{linktest.Loopback()}, udp.Options{Offload: o}, shards)
	return openShards(t, links, err)
}

// TestUDP pairs devices on the loopback interface, without privileges.
func TestUDP(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		offload udp.Offload
		full    bool // only with GOROCE_FULL
	}{
		{"offload", udp.OffloadAuto, false},
		{"frame by frame", udp.OffloadOff, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			repeats(t, c.full)
			runPair(t, func(t *testing.T) (here, there Party) {
				return loopbackWith(t, c.offload, 1), loopbackWith(t, c.offload, 1)
			})
		})
	}
}

// TestSharded pairs devices of several shards, which have a goroutine each: a device with itself, two over UDP, and two
// in memory, whose packets arrive where they should, or all by the link of one.
func TestSharded(t *testing.T) {
	t.Parallel()
	inMemory := func(shards int, o mem.Options) func(t *testing.T) (here, there Party) {
		return func(t *testing.T) (here, there Party) {
			network := mem.NewNetwork()
			at := func(addr byte) Party {
				gid := ib.GIDFromAddr(netip.AddrFrom4([4]byte{192, 0, 2, addr}))
				return openShards(t, network.OpenShards([]ib.GID{gid}, o, shards), nil)
			}
			return at(1), at(2)
		}
	}
	for _, c := range []struct {
		name string
		open func(t *testing.T) (here, there Party)
		full bool // only with GOROCE_FULL
	}{
		{"itself, 2", func(t *testing.T) (here, there Party) {
			p := loopback(t, 2)
			return p, p
		}, false},
		{"UDP, 2", func(t *testing.T) (here, there Party) { return loopback(t, 2), loopback(t, 2) }, true},
		{"memory, 2", inMemory(2, mem.Options{}), true},
		{"memory, 4, one that receives", inMemory(4, mem.Options{Steer: func(*link.Run, int) int { return 1 }}), true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			repeats(t, c.full)
			runPair(t, c.open)
		})
	}
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

// TestVeth pairs devices in two network namespaces, over IPv4 and over IPv6.
func TestVeth(t *testing.T) {
	t.Parallel()
	for _, d := range []struct {
		driver
		plain string // the family of a plain run; none, if only with GOROCE_FULL
	}{
		{driver{"udp", func(a []netip.Addr) (link.Link, error) { return udp.Open(a, udp.Options{}) }}, "IPv6"},
		{driver{"rawsock", rawsockWith(rawsock.OffloadAuto)}, "IPv4"},
		{driver{"rawsock, frame by frame", rawsockWith(rawsock.OffloadOff)}, ""},
		{driver{"afxdp, native", afxdpWith(afxdp.Options{})}, "IPv6"},
		{driver{"afxdp, generic", afxdpWith(afxdp.Options{Generic: true})}, ""},
	} {
		t.Run(d.name, func(t *testing.T) {
			t.Parallel()
			for row, family := range []string{"IPv4", "IPv6"} {
				t.Run(family, func(t *testing.T) {
					t.Parallel()
					repeats(t, family != d.plain)
					runPair(t, func(t *testing.T) (here, there Party) {
						here, there = onVeth(t, d.driver)
						here.GIDIndex, there.GIDIndex = row, row
						return here, there
					})
				})
			}
		})
	}
}

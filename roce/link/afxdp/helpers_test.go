package afxdp

import (
	"net/netip"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/goroce/goroce/roce/link"
	"github.com/goroce/goroce/roce/link/rawsock"
	"github.com/goroce/goroce/roce/link/udp"
	"github.com/goroce/goroce/tests/linktest"
)

func with(o Options) linktest.Opener {
	return func(a []netip.Addr) (link.Link, error) { return Open(a, o) }
}

var (
	native  = with(Options{})
	generic = with(Options{Generic: true})
)

func plain(a []netip.Addr) (link.Link, error) { return udp.Open(a, udp.Options{}) }

func raw(a []netip.Addr) (link.Link, error) { return rawsock.Open(a, rawsock.Options{}) }

// open is linktest.OpenIn for a link of this package.
func open(t testing.TB, ns *linktest.Namespace, o Options, addrs ...netip.Addr) *conn {
	t.Helper()
	return linktest.OpenIn(t, ns, with(o), addrs...).(*conn)
}

// byRings returns how many of the frames that c received came by its rings, and how
// many through the kernel.
func (c *conn) byRings() (rings, kernel int) {
	return int(c.stats.RxFrames), int(c.kernel.Stats().RxFrames)
}

// hooked returns the number of the XDP program on a namespace's interface, 0 if there
// is none.
func hooked(t testing.TB, ns *linktest.Namespace) (program uint32) {
	t.Helper()
	err := ns.Do(func() error {
		l, err := netlink.LinkByName(ns.IfName)
		if err == nil && l.Attrs().Xdp != nil && l.Attrs().Xdp.Attached {
			program = l.Attrs().Xdp.ProgId
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return program
}

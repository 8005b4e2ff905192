package udp_test

import (
	"errors"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/link/udp"
	"github.com/goroce/goroce/tests/linktest"
)

// TestRejoinFails: the host refuses the membership of a joined group on the interface of a new address. The address can
// be added later.
func TestRejoinFails(t *testing.T) {
	ns, _ := linktest.NewVeth(t, 1500)
	l := openIn(t, ns, udp.Options{}, ns.Addr4)
	if err := l.Join(linktest.NewGroup(l)); err != nil {
		t.Fatal(err)
	}
	loopback := ib.GIDFromAddr(netip.AddrFrom4([4]byte{127, 0, 0, 1}))
	const most = "/proc/sys/net/ipv4/igmp_max_memberships"
	ns.Command(t, "sh", "-c", "echo 0 >"+most)
	before := linktest.OpenDescriptors(t)
	if err := l.AddLocal(loopback); !errors.Is(err, unix.ENOBUFS) {
		t.Fatalf("AddLocal: %v, want ENOBUFS", err)
	}
	if n := linktest.OpenDescriptors(t); n > before {
		t.Errorf("AddLocal, which failed, has left %d descriptors, want none", n-before)
	}
	ns.Command(t, "sh", "-c", "echo 20 >"+most)
	if err := l.AddLocal(loopback); err != nil {
		t.Error(err)
	}
}

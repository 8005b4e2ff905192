package udp_test

import (
	"net"
	"net/netip"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/link"
	"github.com/goroce/goroce/roce/link/udp"
	"github.com/goroce/goroce/tests/linktest"
	"github.com/goroce/goroce/tests/require"
)

func TestMembership(t *testing.T) {
	linktest.Membership(t, func(ns *linktest.Namespace,
		addr netip.Addr) link.Link {
		return openIn(t, ns, udp.Options{}, addr)
	})
}

// linkLocal returns the IPv6 link-local address of the namespace's interface.
func linkLocal(t *testing.T, ns *linktest.Namespace) (a netip.Addr) {
	t.Helper()
	err := ns.Do(func() error {
		itf, err := net.InterfaceByName(ns.IfName)
		if err != nil {
			return err
		}
		addrs, err := itf.Addrs()
		for _, have := range addrs {
			if p := netip.MustParsePrefix(have.String()); p.Addr().IsLinkLocalUnicast() {
				a = p.Addr().WithZone(ns.IfName)
			}
		}
		return err
	})
	if err != nil || !a.IsValid() {
		t.Fatalf("no link-local address: %v", err)
	}
	return a
}

// Groups of the link only, from a link-local address and a global one.
func TestLinkLocalGroup(t *testing.T) {
	na, nb := linktest.NewVeth(t, 1500)
	a, b := openIn(t, na, udp.Options{}, linkLocal(t, na), na.Addr6),
		openIn(t, nb, udp.Options{}, nb.Addr6, linkLocal(t, nb))
	group := linktest.NewGroup(a)
	group[1] = 0x02
	if err := b.Join(group); err != nil {
		t.Fatal(err)
	}
	for _, src := range a.Caps().Local {
		r := linktest.NewDatagram(a, group, 64)
		r.Src = src
		linktest.SendAll(t, a, []link.Run{r})
		if got := linktest.Collect(t, b, 1)[0]; got.Src != src || got.Dst != group {
			t.Errorf("received from %v to %v, want from %v to %v", got.Src.Addr(), got.Dst.Addr(), src.Addr(),
				group.Addr())
		}
	}
}

// A group is joined on the interfaces of the link, all of them and no others, and
// frames leave by the interface of the address that they come from.
func TestInterfacesOfGroup(t *testing.T) {
	na, nb := linktest.NewVeth(t, 1500)
	na.Command(t, "ip", "link", "add", "second", "type", "veth", "peer", "name", "end")
	for _, cmd := range []string{"link set end up", "link set second up", "addr add 10.98.0.1/24 dev second",
		"addr add 10.98.0.2/24 dev second",
		"addr add fd98::1/64 dev second nodad", "addr add fd98::2/64 dev second nodad"} {
		na.Command(t, "ip", strings.Fields(cmd)...)
	}
	for _, tt := range []struct {
		name                                   string
		first, second, otherSecond, farOfFirst netip.Addr
	}{
		{"IPv4", na.Addr4, netip.MustParseAddr("10.98.0.1"), netip.MustParseAddr("10.98.0.2"), nb.Addr4},
		{"IPv6", na.Addr6, netip.MustParseAddr("fd98::1"), netip.MustParseAddr("fd98::2"), nb.Addr6},
	} {
		t.Run(tt.name, func(t *testing.T) {
			both := openIn(t, na, udp.Options{}, tt.first, tt.second)
			second := openIn(t, na, udp.Options{}, tt.otherSecond)
			far := openIn(t, nb, udp.Options{}, tt.farOfFirst)
			group := linktest.NewGroup(both)
			for _, l := range []link.Link{both, second, far} {
				if err := l.Join(group); err != nil {
					t.Fatal(err)
				}
			}
			for i, receivers := range [][]link.Link{{both, far}, {both, second}} {
				r := linktest.NewDatagram(both, group, 64+4*i)
				r.Src = both.Caps().Local[i]
				linktest.SendAll(t, both, []link.Run{r})
				for _, l := range receivers {
					if got := linktest.Collect(t, l, 1)[0]; got.Src != r.Src || len(got.Buf) != len(r.Buf) {
						t.Errorf("received %d bytes from %v, want %d from %v", len(got.Buf), got.Src.Addr(), len(r.Buf),
							r.Src.Addr())
					}
				}
			}
			in := make([]link.Run, 1)
			for name, l := range map[string]link.Link{"both": both, "second": second, "far": far} {
				if n, _ := l.Recv(0, in); n > 0 {
					t.Errorf("%s: one more frame, from %v, want none", name, in[0].Src.Addr())
				}
			}
		})
	}
}

// A program that keeps a group's port for itself is named.
func TestGroupTaken(t *testing.T) {
	l := open(t, udp.Options{}, linktest.Loopback())
	group := linktest.NewGroup(l)
	foreign, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Bind(foreign, &unix.SockaddrInet4{Port: link.Port, Addr: group.Addr().As4()}); err != nil {
		t.Fatal(err)
	}
	checkTaken(t, l.Join(group), group.Addr())
	_ = unix.Close(foreign)
	if err := l.Join(group); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}

// TestManyGroups: a call of Recv looks at a few groups, and at the address in any case. Frames to all groups arrive in
// the end.
func TestManyGroups(t *testing.T) {
	const groups = 5 * udp.RecvGroups
	na, nb := linktest.NewVeth(t, 1500)
	nb.Command(t, "sh", "-c", "echo 100 >/proc/sys/net/ipv4/igmp_max_memberships")
	a, b := openIn(t, na, udp.Options{}, na.Addr4), openIn(t, nb, udp.Options{}, nb.Addr4)
	own := b.Caps().Local[0]
	var all []link.Run
	for range groups {
		g := linktest.NewGroup(b)
		if err := b.Join(g); err != nil {
			t.Fatal(err)
		}
		all = append(all, linktest.NewDatagram(a, g, 64))
	}
	for range 3 * groups {
		linktest.SendAll(t, a, []link.Run{linktest.NewDatagram(a, own, 64)})
	}
	linktest.SendAll(t, a, all)
	seen := map[ib.GID]int{}
	require.Until(t, "all frames arrive", func() bool {
		var in [32]link.Run
		n, err := b.Recv(0, in[:])
		if err != nil {
			t.Fatal(err)
		}
		few := map[ib.GID]bool{}
		for _, r := range in[:n] {
			seen[r.Dst] += r.Frames()
			if r.Dst != own {
				few[r.Dst] = true
			}
		}
		if len(few) > udp.RecvGroups {
			t.Fatalf("got frames to %d groups in one call, want %d at most", len(few), udp.RecvGroups)
		}
		return len(seen) == groups+1 && seen[own] == 3*groups
	})
}

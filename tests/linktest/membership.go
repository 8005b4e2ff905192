package linktest

import (
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/link"
)

// Membership tests that links on a real interface, which open opens, announce memberships in groups, and their end, to
// switches and the NIC.
func Membership(t *testing.T, open func(*Namespace, netip.Addr) link.Link) {
	ns, _ := NewVeth(t, 1500)
	for _, addr := range []netip.Addr{ns.Addr4, ns.Addr6} {
		closed := func(l link.Link, _ ib.GID) error { return l.Close() }
		for _, end := range []func(link.Link, ib.GID) error{link.Link.Leave, closed} {
			l := open(ns, addr)
			group := NewGroup(l)
			check := func(when string, want bool) {
				t.Helper()
				if host, nic := ns.member(t, group); host != want || nic != want {
					t.Errorf("%s: host a member of %v: %v, NIC lets it in: %v; want %v", when, group.Addr(), host, nic,
						want)
				}
			}
			check("before Join", false)
			join(t, group, l)
			check("after Join", true)
			if err := end(l, group); err != nil {
				t.Error(err)
			}
			check("after Leave or Close", false)
			_ = l.Close()
		}
	}
}

// member reports whether the host is a member of a group on the namespace's interface, and whether the NIC accepts the
// group's frames.
func (n *Namespace) member(t testing.TB, group ib.GID) (host, nic bool) {
	t.Helper()
	mac := GroupMAC(group)
	for line := range strings.Lines(n.Command(t, "ip", "maddr", "show", "dev", n.IfName)) {
		f := strings.Fields(line)
		if len(f) > 1 {
			host = host || f[1] == group.Addr().String()
			nic = nic || f[0] == "link" && f[1] == net.HardwareAddr(mac[:]).String()
		}
	}
	return host, nic
}

package host

import (
	"testing"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/tests/linktest"
)

// finder returns a function that looks for the path MTU from a to b, which is 1024.
func finder(t *testing.T, a, b *linktest.Namespace) (find func(when string)) {
	t.Helper()
	var p *paths
	if err := a.Do(func() (err error) {
		p, err = newPaths()
		return err
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.close)
	return func(when string) {
		t.Helper()
		if mtu, errno := p.find(a.Addr4, b.Addr4, ib.MTU4096); mtu != ib.MTU1024 || errno != 0 {
			t.Errorf("%s the path MTU is %v (error number %d), want %v", when, mtu, errno, ib.MTU1024)
		}
	}
}

// TestPathForgotten: a path MTU is looked for again, before its time, when the kernel has forgotten what ICMP has told
// of it: a change of an address does that.
func TestPathForgotten(t *testing.T) {
	a, _, _, b := linktest.NewRouted(t, 9000, 1500)
	find := finder(t, a, b)
	find("at first")
	find("a moment later")
	a.Command(t, "ip", "route", "add", "192.0.2.0/24", "via", "10.99.1.2")
	find("after a change of another route")
	a.Command(t, "ip", "addr", "del", "10.99.1.1/24", "dev", a.IfName)
	a.Command(t, "ip", "addr", "add", "10.99.1.1/24", "dev", a.IfName)
	a.Command(t, "ip", "route", "add", "10.99.0.0/16", "via", "10.99.1.2")
	find("after the address has gone and come back")
}

// TestPathProbeLost: a probe that gets lost is sent again.
func TestPathProbeLost(t *testing.T) {
	a, near, _, b := linktest.NewRouted(t, 9000, 1500)
	near.Command(t, "nft", "add table ip t; add chain ip t c { type filter hook prerouting priority 0; }; "+
		"add rule ip t c udp dport 4791 numgen inc mod 2 0 drop") // the first, the third ...
	finder(t, a, b)("at first")
}

package doctor

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/goroce/goroce/tests/linktest"
	"github.com/goroce/goroce/tests/require"
)

// TestProbe: a packet finds what no reading of rules does: whether the peer is in a set, and that a filter of the
// interface drops it. Where all is well the packet arrives, over both versions of IP.
func TestProbe(t *testing.T) {
	require.Root(t)
	require.Command(t, "nft")
	a, b := linktest.NewVeth(t, 1500)
	if err := a.Do(func() error { _, err := probePort(a.IfName, a.Addr4, b.Addr4); return err }); err != nil {
		require.Missing(t, "needs a kernel that can be made to receive a packet, 5.18 or later: %v", err)
	}
	const table = "nft 'add table inet t; add chain inet t c { type filter hook input priority 0; }; " +
		"add set inet t bad { type ipv4_addr; }; add set inet t bad6 { type ipv6_addr; }; " +
		"add rule inet t c ip saddr @bad drop; add rule inet t c ip6 saddr @bad6 drop'"
	for _, c := range []struct {
		name, do string
		want     bool
	}{
		{"nothing in the way", "true", true},
		{"a rule for some, not for the peer", table, true},
		{"a rule for the peer", "nft 'add element inet t bad { " + b.Addr4.String() + " }; " +
			"add element inet t bad6 { " + b.Addr6.String() + " }'", false},
		{"a filter before the tables of IP", "nft 'flush ruleset; add table netdev n; " +
			"add chain netdev n c { type filter hook ingress device IF priority 0; policy drop; }'", false},
		{"no filter any more", "nft flush ruleset", true},
	} {
		a.Command(t, "sh", "-c", strings.ReplaceAll(c.do, "IF", a.IfName))
		for _, way := range [][2]netip.Addr{{a.Addr4, b.Addr4}, {a.Addr6, b.Addr6}} {
			var got bool
			if err := a.Do(func() (err error) {
				got, err = probePort(a.IfName, way[0], way[1])
				return err
			}); err != nil || got != c.want {
				t.Errorf("%s: a packet from %v arrives: %v, %v, want %v", c.name, way[1], got, err, c.want)
			}
		}
	}
}

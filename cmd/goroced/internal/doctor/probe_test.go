package doctor

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/goroce/goroce/roce/host"
	"github.com/goroce/goroce/tests/linktest"
	"github.com/goroce/goroce/tests/require"
)

const (
	dropPeer   = "nft 'add rule inet t c ip saddr @bad drop; add rule inet t c ip6 saddr @bad6 drop'"
	dropPolicy = "nft 'add table inet t; add chain inet t c { type filter hook input priority 0; }; " +
		"add set inet t bad { type ipv4_addr; }; add set inet t bad6 { type ipv6_addr; }'"
)

// TestProbe: a packet finds what no reading of the rules does: whether the peer is in a set, and that a filter of
// the interface drops it. Where all is well the packet arrives, over both versions of IP.
func TestProbe(t *testing.T) {
	require.Root(t)
	require.Command(t, "nft")
	a, b := linktest.NewVeth(t, 1500)
	if err := a.Do(func() error { _, err := probePort(a.IfName, a.Addr4, b.Addr4); return err }); err != nil {
		require.Missing(t, "needs a kernel that can be made to receive a packet, 5.18 or later: %v", err)
	}
	for _, c := range []struct {
		name, do string
		want     Status
		words    string // PEER is the peer's address
	}{
		{"nothing in the way", "true", OK, "packets from PEER reach UDP port 4791"},
		{"a rule for some, not for the peer", dropPolicy + " && " + dropPeer, OK, "packets from PEER reach"},
		{"a rule for the peer", "nft 'add element inet t bad { " + b.Addr4.String() + " }; " +
			"add element inet t bad6 { " + b.Addr6.String() + " }'", Fail, "drop UDP port 4791"},
		{"a filter before the tables of IP", "nft 'flush ruleset; add table netdev n; " +
			"add chain netdev n c { type filter hook ingress device IF priority 0; policy drop; }'",
			Fail, "a packet from PEER does not reach UDP port 4791"},
		{"no filter any more", "nft flush ruleset", OK, "packets from PEER reach"},
	} {
		a.Command(t, "sh", "-c", strings.ReplaceAll(c.do, "IF", a.IfName))
		for _, peer := range []netip.Addr{b.Addr4, b.Addr6} {
			found := examine(t, a.Do, Options{NetIf: a.IfName, Peer: peer})
			words := strings.ReplaceAll(c.words, "PEER", peer.String())
			if pick(found, "firewall", c.want, words) == nil {
				t.Errorf("%s, %v: no finding %v that says %q:\n%s", c.name, peer, c.want, words, text(found))
			}
		}
	}
}

// TestProbeAndRules: a probe that arrives clears rules that might drop it, one that does not makes them failures, and
// neither says anything of rules for what leaves.
func TestProbeAndRules(t *testing.T) {
	const may, leaves = "-A INPUT -p udp -m udp --sport 1000:2000 -j DROP\n", "-A OUTPUT -p udp -j DROP\n"
	for _, c := range []struct {
		name, rules, peer string
		arrives           bool
		want              []Status
	}{
		{"arrives", "", "10.0.0.2", true, []Status{OK}},
		{"arrives despite a rule", may, "10.0.0.2", true, []Status{OK}},
		{"arrives, the answer does not leave", may + leaves, "10.0.0.2", true, []Status{Fail}},
		{"dropped by a rule", may, "10.0.0.2", false, []Status{Fail}},
		{"dropped by nobody knows what", "", "10.0.0.2", false, []Status{Fail}},
		{"dropped, and the answer does not leave", leaves, "10.0.0.2", false, []Status{Fail, Fail}},
		{"nobody is asked of", may, "", false, []Status{Warn}},
		{"of the other IP version", may, "2001:db8::2", false, []Status{Warn}},
		{"an own address", may, "10.0.0.1", false, []Status{Warn}},
		{"an address of another interface", may, "10.0.0.3", false, []Status{Warn}},
	} {
		e := machine(t, nil)
		e.setCaps(t, netAdmin)
		e.all = []host.Interface{{Addrs: []netip.Addr{netip.MustParseAddr("10.0.0.3")}}}
		e.Peer, _ = netip.ParseAddr(c.peer)
		e.probe = func(netif string, local, peer netip.Addr) (bool, error) {
			if netif != "eth0" || local != e.usable[0] || peer != e.Peer {
				t.Errorf("%s: probe of %v at %v, %s", c.name, peer, local, netif)
			}
			return c.arrives, nil
		}
		e.command = func(name string, _ ...string) (string, error) {
			if name != "iptables-save" {
				return "", errors.New("not there")
			}
			return "*filter\n:INPUT ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\n" + c.rules + "COMMIT\n", nil
		}
		found := checkFirewall(e)
		if len(found) != len(c.want) {
			t.Errorf("%s: found %+v, want %v", c.name, found, c.want)
			continue
		}
		for i := range found {
			if found[i].Status != c.want[i] {
				t.Errorf("%s: found %+v, want %v", c.name, found, c.want)
			}
		}
	}
}

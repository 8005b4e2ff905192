package doctor

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/goroce/goroce/tests/linktest"
	"github.com/goroce/goroce/tests/require"
)

// problem is one that a test makes in a namespace. IF stands for the interface, and
// IF2 for another one.
type problem struct {
	name   string
	make   []string // commands
	peer   string   // Options.Peer
	check  string
	status Status
	words  string
	undo   string // what a remedy says that is not a command
	needs  string // a program
}

var problems = []problem{
	{name: "interface down", make: []string{"ip link set IF down"}, check: "interface", status: Fail, words: "is down"},
	{name: "no address", make: []string{"ip address flush dev IF"}, check: "gids", status: Fail,
		words: "GID table is empty",
		undo:  "ip address add 10.99.0.1/24 dev IF"},
	{name: "duplicate address", make: []string{"ip link add IF2 type veth peer name IF2p", "ip link set IF2 up",
		"ip link set IF2p up", "ip address add 10.99.0.1/32 dev IF2"}, check: "gids", status: Fail,
		words: "IF2 has 10.99.0.1, too"},
	{name: "MTU 1000", make: []string{"ip link set IF mtu 1000"}, check: "mtu", status: Warn,
		words: "carries path MTU 512"},
	{name: "MTU 300", make: []string{"ip link set IF mtu 300"}, check: "mtu", status: Fail, words: "below 336"},
	{name: "MTU of the route", make: []string{"ip route add 10.99.0.2/32 dev IF mtu 1000"}, peer: "10.99.0.2",
		check: "route", status: Warn, words: "MTU 1000, so path MTU 512", undo: "ip route del 10.99.0.2/32 dev IF"},
	{name: "no route", peer: "192.0.2.9", check: "route", status: Fail, words: "192.0.2.9",
		undo: "ip route add 192.0.2.9 via 10.99.0.2"},
	{name: "other route", make: []string{"ip link add IF2 type veth peer name IF2p", "ip link set IF2 up",
		"ip link set IF2p up", "ip route add 192.0.2.9 dev IF2"}, peer: "192.0.2.9", check: "route", status: Fail,
		words: "leaves by IF2"},
	{name: "other IP version", make: []string{"ip -4 address flush dev IF", "ip route add 192.0.2.9 dev IF"},
		peer: "192.0.2.9", check: "route", status: Fail, words: "IP version",
		undo: "ip address add 10.99.0.1/24 dev IF"},
	{name: "strict reverse path filter", make: []string{"ip link add IF2 type veth peer name IF2p",
		"ip link set IF2 up", "ip link set IF2p up", "ip address add 10.98.0.1/24 dev IF2", "sysctl -w " +
			"net/ipv4/conf/IF/rp_filter=1"}, check: "rp_filter", status: Warn, words: "strict"},
	{name: "checksums off", make: []string{"ethtool -K IF tx off"}, check: "offload", status: Warn,
		words: "does not complete checksums", needs: "ethtool"},
}

// TestProblems: each is found when a test makes it, and its remedy clears it.
func TestProblems(t *testing.T) {
	require.Root(t)
	for _, p := range problems {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			require.Command(t, "ip")
			if p.needs != "" {
				require.Command(t, p.needs)
			}
			ns, _ := linktest.NewVeth(t, 1500)
			fill := func(s string) string { return strings.ReplaceAll(s, "IF", ns.IfName) }
			o := Options{NetIf: ns.IfName}
			if p.peer != "" {
				o.Peer = netip.MustParseAddr(p.peer)
			}
			if p.name != "no route" {
				wantOK(t, examine(t, ns.Do, Options{NetIf: ns.IfName}), p.check0())
			}
			for _, line := range p.make {
				ns.Command(t, "sh", "-c", fill(line))
			}
			f := wantFound(t, examine(t, ns.Do, o), p.check, p.status, fill(p.words))
			remedy := f.Command
			if p.undo != "" {
				if remedy != "" {
					t.Errorf("there is a command after all: %s", remedy)
				}
				remedy = fill(p.undo)
			}
			ns.Command(t, "sh", "-c", remedy)
			wantOK(t, examine(t, ns.Do, o), p.check)
		})
	}
}

// check0 is the check that must be content before the problem is made.
func (p *problem) check0() string {
	if p.check == "route" { // says nothing without a peer
		return "interface"
	}
	return p.check
}

// TestNoCarrier: the other end of the cable is dead.
func TestNoCarrier(t *testing.T) {
	a, b := linktest.NewVeth(t, 1500)
	b.Command(t, "ip", "link", "set", b.IfName, "down")
	wantFound(t, examine(t, a.Do, Options{NetIf: a.IfName}), "interface", Fail, "no carrier")
	b.Command(t, "ip", "link", "set", b.IfName, "up")
	wantOK(t, examine(t, a.Do, Options{NetIf: a.IfName}), "interface")
}

// TestDuplicateOnTheWire: duplicate address detection (RFC 4862) finds the address at
// the other end.
func TestDuplicateOnTheWire(t *testing.T) {
	a, b := linktest.NewVeth(t, 1500)
	a.Command(t, "sysctl", "-w", "net/ipv6/conf/"+a.IfName+"/accept_dad=1")
	a.Command(t, "ip", "address", "add", b.Addr6.String()+"/64", "dev", a.IfName)
	var f *Finding
	require.Until(t, fmt.Sprintf("a finding that another host has %v", b.Addr6), func() bool {
		found := examine(t, a.Do, Options{NetIf: a.IfName})
		f = pick(found, "gids", Fail, fmt.Sprintf("another host has %v", b.Addr6))
		if f == nil && pick(found, "gids", Warn, fmt.Sprintf("%v is tentative", b.Addr6)) == nil {
			t.Fatalf("neither tentative nor failed:\n%s", text(found))
		}
		return f != nil
	})
	a.Command(t, "sh", "-c", f.Command)
	wantOK(t, examine(t, a.Do, Options{NetIf: a.IfName}), "gids")
}

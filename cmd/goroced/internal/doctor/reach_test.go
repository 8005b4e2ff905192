package doctor

import (
	"errors"
	"io/fs"
	"net/netip"
	"regexp"
	"strings"
	"testing"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/internal/socket"
	"github.com/goroce/goroce/roce"
	"github.com/goroce/goroce/roce/daemon/server"
	"github.com/goroce/goroce/roce/host"
	"github.com/goroce/goroce/tests/linktest"
	"github.com/goroce/goroce/tests/require"
)

// serveIn opens a device with a namespace's addresses, and closes it at the end of the test.
func serveIn(t *testing.T, ns *linktest.Namespace) (dev roce.Device) {
	t.Helper()
	if err := ns.Do(func() (err error) {
		dev, err = host.Open(host.Options{NetIf: ns.IfName})
		return err
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = dev.Close() })
	return dev
}

// peerCase is a peer, b, and what the doctor on a says of it.
type peerCase struct {
	name    string
	here    []string // commands on a
	there   []string // commands on b
	speaks  bool     // b has a device
	peer    netip.Addr
	status  Status
	words   string // a regular expression
	command string // PEER, ME and IF stand for names
}

var peerCases = []peerCase{
	{name: "healthy", speaks: true, words: `^PEER answers in \d+ [um]s, path MTU 4096, 0 of 40 lost$`},
	{name: "nobody listens", status: Fail, words: `^nobody has UDP port 4791 of PEER`,
		command: "goroced serve --addr PEER"},
	{name: "dropped there", speaks: true, there: []string{"nft 'add table inet t; " +
		"add chain inet t c { type filter hook input priority 0; }; add rule inet t c udp dport 4791 drop'"},
		status: Fail, words: `^PEER answers ping in \d+ [um]s, and UDP port 4791 says nothing`,
		command: "nft insert rule inet filter input udp dport 4791 accept"},
	{name: "long packets are dropped", speaks: true, there: []string{"nft 'add table inet t; " +
		"add chain inet t c { type filter hook input priority 0; }; add rule inet t c meta length > 1500 drop'"},
		status: Fail, words: `^PEER answers in .*, but packets of path MTU 4096 do not come back, and nothing says so; ` +
			`those of path MTU 1024 do; the way there drops them$`, command: "ip link set IF mtu 1500"},
	{name: "long packets are dropped on the way back", speaks: true, here: []string{"nft 'add table inet t; " +
		"add chain inet t c { type filter hook input priority 0; }; add rule inet t c meta length > 1500 drop'"},
		status: Fail, words: `^PEER answers in .*, but packets of path MTU 4096 do not come back, and nothing says so; ` +
			`those of path MTU 1024 do; they arrive there, so the way back drops them$`,
		command: "ip link set IF mtu 1500"},
	{name: "marks", speaks: true, words: `^PEER is goroce: of 21 requests 0 were lost on the way there, and 0 of 21 ` +
		`answers on the way back; ECN marks survive both ways; its clock is that of this machine, within \d+ us$`},
	{name: "marks are cleared on the way there", speaks: true, here: []string{"nft 'add table inet t; " +
		"add chain inet t c { type filter hook output priority 0; }; add rule inet t c ip ecn set not-ect'"},
		status: Warn, words: `ECN marks are cleared, at least on the way there; `, command: "goroced doctor ME # on PEER"},
	{name: "marks are cleared on the way back", speaks: true, there: []string{"nft 'add table inet t; " +
		"add chain inet t c { type filter hook output priority 0; }; add rule inet t c ip ecn set not-ect'"},
		status: Warn, words: `ECN marks are cleared on the way back; `, command: "goroced doctor ME # on PEER"},
	{name: "nobody has the address", peer: netip.MustParseAddr("10.99.0.77"), status: Fail,
		words: `^PEER does not answer ARP on IF`, command: "ip neigh flush to PEER dev IF; ping -c 3 PEER"},
	{name: "dropped here, going out", speaks: true, here: []string{"nft 'add table inet t; " +
		"add chain inet t c { type filter hook output priority 0; }; add rule inet t c udp dport 4791 drop'"},
		status: Fail, words: `^a firewall of this machine drops what is sent .* chain c of table inet t: udp dport 4791`,
		command: "nft delete rule inet t c handle 2"},
	{name: "dropped here, coming in", speaks: true, here: []string{"nft 'add table inet t; " +
		"add chain inet t c { type filter hook input priority 0; policy drop; }; " +
		"add rule inet t c meta l4proto { icmp, ipv6-icmp } accept'"},
		status: Fail, words: `^this machine drops packets from PEER .* policy drop;`,
		command: "nft insert rule inet t c udp dport 4791 accept"},
	{name: "healthy, and no ping", speaks: true, there: []string{"sysctl -w net.ipv4.icmp_echo_ignore_all=1"},
		words: `^PEER answers in .*, path MTU not known \(no answer to ping\), 0 of 20 lost$`},
}

// TestPeer: each way in which a peer can be broken has a text of its own, with the command that helps, and firewalls
// are spoken of only where packets get lost.
func TestPeer(t *testing.T) {
	require.Root(t)
	for _, c := range peerCases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if strings.Contains(strings.Join(append(c.here, c.there...), ""), "nft") {
				require.Command(t, "nft")
			}
			a, b := linktest.NewVeth(t, 9000)
			if c.speaks {
				serveIn(t, b)
			}
			for _, line := range c.here {
				a.Command(t, "sh", "-c", line)
			}
			for _, line := range c.there {
				b.Command(t, "sh", "-c", line)
			}
			peer := c.peer
			if !peer.IsValid() {
				peer = b.Addr4
			}
			fill := strings.NewReplacer("PEER", peer.String(), "ME", a.Addr4.String(), "IF", a.IfName).Replace
			words := regexp.MustCompile(fill(c.words))
			var found []Finding
			var f *Finding
			for tries := 3; f == nil && tries > 0; tries-- { // a busy machine answers late, which looks like a loss
				found = examine(t, a.Do, Options{Peer: peer})
				for i := range found {
					if found[i].Check == "peer" && words.MatchString(found[i].Text) {
						f = &found[i]
					}
				}
			}
			if f == nil || f.Status != c.status || f.Command != fill(c.command) {
				t.Errorf("want %v that says %q, and the command %q; got:\n%s", c.status, fill(c.words), fill(c.command),
					text(found))
			}
		})
	}
}

// TestPeerRemedy: the command that the doctor prints for a rule of this machine clears the finding.
func TestPeerRemedy(t *testing.T) {
	t.Parallel()
	require.Command(t, "nft")
	a, b := linktest.NewVeth(t, 1500)
	serveIn(t, b)
	a.Command(t, "sh", "-c", "nft 'add table inet t; add chain inet t c { type filter hook output priority 0; }; "+
		"add rule inet t c udp dport 4791 drop'")
	f := wantFound(t, examine(t, a.Do, Options{Peer: b.Addr4}), "peer", Fail, "drops what is sent")
	a.Command(t, "sh", "-c", f.Command)
	wantOK(t, examine(t, a.Do, Options{Peer: b.Addr4}), "peer")
}

// TestPeerByDaemon: where a daemon has the port the doctor asks through it, over both versions of IP.
func TestPeerByDaemon(t *testing.T) {
	a, b := linktest.NewVeth(t, 1500)
	serveIn(t, b)
	e := machine(t, nil)
	e.getenv = func(name string) string { // not what is found, which may be a daemon of this machine
		return map[string]string{socket.ClientVariable: systemSocket}[name]
	}
	newDaemonOf(t, serveIn(t, a), e.path(systemSocket), server.Options{})
	for _, peer := range []netip.Addr{b.Addr4, b.Addr6} {
		if err := a.Do(func() (err error) {
			if e.subject, err = findSubject(&Options{Peer: peer}); err != nil {
				return err
			}
			e.Peer = peer
			if found := checkPeer(e); len(found) != 2 || found[0].Status != OK || found[1].Status != OK ||
				!strings.Contains(found[0].Text, "path MTU 1024, 0 of 40 lost") ||
				!strings.Contains(found[1].Text, "ECN marks survive both ways; its clock is that of this machine") {
				t.Errorf("of %v: %+v, want an answer, and what it has received", peer, found)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
}

// TestPeerNarrow: a router that says that it takes shorter packets only is no fault: connections follow it.
func TestPeerNarrow(t *testing.T) {
	a, _, _, b := linktest.NewRouted(t, 9000, 1500)
	serveIn(t, b)
	found := examine(t, a.Do, Options{Peer: b.Addr4})
	if pick(found, "peer", OK, "path MTU 1024 (a router takes no longer packets), 0 of 40 lost") == nil {
		t.Errorf("want an answer, and path MTU 1024:\n%s", text(found))
	}
}

// TestEchoRefused: a user who may not ping is told so, and the rest is measured.
func TestEchoRefused(t *testing.T) {
	for err, want := range map[error]string{
		nil:                   "path MTU 1024",
		errNoEcho:             "path MTU not known (no answer to ping)",
		errors.ErrUnsupported: "path MTU not known (unsupported operation)",
		fs.ErrPermission:      "path MTU not known (without root ping is not allowed: net.ipv4.ping_group_range)",
	} {
		w := way{want: ib.MTU1024, best: ib.MTU1024, err: err}
		if got := w.text(); got != want {
			t.Errorf("%v: got %q, want %q", err, got, want)
		}
	}
}

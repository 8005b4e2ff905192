package main

import (
	"strings"
	"syscall"
	"testing"

	"github.com/goroce/goroce/tests/linktest"
)

// transfers are tools that send packets as long as the path MTU allows.
var transfers = []struct{ server, client string }{
	{"rping -s", "rping -c -C 3 -V -S 20000 -a "},
	{"rstream -S 100000 -C 5 -T v", "rstream -S 100000 -C 5 -T v -s "},
}

// TestPathMTU: between hosts with jumbo frames and a narrower link between them, connections use what passes there.
func TestPathMTU(t *testing.T) {
	t.Parallel()
	a, _, _, b := linktest.NewRouted(t, 9000, 1500)
	for _, tt := range transfers {
		server, _ := startIn(t, b, "waiting for a client", strings.Fields(tt.server)...)
		client, _ := startIn(t, a, "", strings.Fields(tt.client+b.Addr4.String())...)
		client.done(t, tt.client)
		server.done(t, tt.server)
	}
	if out := a.Command(t, "ip", "route", "get", b.Addr4.String()); !strings.Contains(out, "mtu 1500") {
		t.Errorf("nothing has told the kernel of the narrow link, want %q:\n%s", "mtu 1500", out)
	}
}

// TestPathMTUBlackHole: a path that swallows long packets without a word is named; with --mtu it works, at either end.
func TestPathMTUBlackHole(t *testing.T) {
	t.Parallel()
	a, near, far, b := linktest.NewRouted(t, 9000, 9000)
	for _, router := range []*linktest.Namespace{near, far} { // it drops what is longer when it arrives, as switches do
		router.Command(t, "ip", "link", "set", router.IfName, "mtu", "1500")
	}
	for _, host := range []*linktest.Namespace{a, b} { // veth passes runs of any length
		host.Command(t, "ip", "link", "set", host.IfName, "gso_max_segs", "1")
	}
	for _, tt := range transfers {
		server, _ := startIn(t, b, "waiting for a client", strings.Fields(tt.server)...)
		client, _ := startIn(t, a, "", strings.Fields(tt.client+b.Addr4.String()+" --ack-timeout 12")...)
		for name, p := range map[string]*process{tt.client: client, tt.server: server} {
			code, said := p.wait(t), p.err.String()
			if code != exitFailure || !strings.Contains(said, "path MTU") || !strings.Contains(said, "--mtu 1024") ||
				strings.Contains(said, "the peer fell silent") || strings.Contains(said, "firewall stop") {
				t.Errorf("%s: exit code %d, want %d, the path MTU and --mtu 1024: %s", name, code, exitFailure, said)
			}
		}
	}
	for i, tt := range transfers {
		mine, theirs := "", " --mtu 1024"
		if i%2 == 0 {
			mine, theirs = theirs, mine
		}
		server, _ := startIn(t, b, "waiting for a client", strings.Fields(tt.server+theirs)...)
		client, _ := startIn(t, a, "", strings.Fields(tt.client+b.Addr4.String()+mine)...)
		client.done(t, tt.client+mine)
		server.done(t, tt.server+theirs)
	}
}

// TestMTURefused: a client that insists on a path MTU that the server does not take fails and says so. So does the
// server with -d: most clients ask again for its own. It waits for another.
func TestMTURefused(t *testing.T) {
	t.Parallel()
	addr := linktest.Loopback().String()
	server, port := serve(t, "rping", "-s", "-d", "-a", addr, "--mtu", "512")
	client := start(t, "rping", "-c", "-a", addr, "-I", linktest.Loopback().String(), "-p", port, "--mtu", "1024")
	if code := client.wait(t); code != exitFailure || !strings.Contains(client.err.String(), "(--mtu)") {
		t.Errorf("client: exit code %d, want %d and %q: %s", code, exitFailure, "(--mtu)", client.err.String())
	}
	_ = server.cmd.Process.Signal(syscall.SIGINT) // it goes on waiting
	if code := server.wait(t); code != 130 || strings.Count(server.err.String(), "this end takes") != 1 ||
		!strings.Contains(server.err.String(), "the peer asks for path MTU 1024, this end takes 512 at most") {
		t.Errorf("server: exit code %d, want 130 and once %q: %s", code,
			"the peer asks for path MTU 1024, this end takes 512 at most", server.err.String())
	}
}

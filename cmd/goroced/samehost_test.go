package main

import (
	"net/netip"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/goroce/goroce/tests/linktest"
)

// TestSameHost: two programs on one machine cannot have the same address. The line of the waiting server has the
// command that works, and the error of the one that does not work has it, too.
func TestSameHost(t *testing.T) {
	t.Parallel()
	const offered = "on this machine `goroced ([^`]*--addr 127[^`]*)`"
	a, _ := linktest.NewVeth(t, 1500)
	for _, tt := range []struct{ server, client string }{
		{"pingpong -n 20", "pingpong -n 20 ADDR"},
		{"perf write bw -n 20", "perf write bw -n 20 ADDR"},
		{"perf send bw -R -n 20", "perf send bw -R -n 20 ADDR"},
		{"rping -s", "rping -c -C 3 -a ADDR"},
		{"rstream -C 3", "rstream -C 3 -s ADDR"},
	} {
		server, _ := startIn(t, a, offered, strings.Fields(tt.server)...)
		refused, _ := startIn(t, a, "", strings.Fields(strings.ReplaceAll(tt.client, "ADDR", a.Addr4.String()))...)
		code, said := refused.wait(t), refused.err.String()
		works := regexp.MustCompile("here: `goroced ([^`]*)`").FindStringSubmatch(said)
		if code != exitFailure || works == nil {
			t.Errorf("%s: exit code %d, want %d and what works: %s", tt.client, code, exitFailure, said)
			continue
		}
		client, _ := startIn(t, a, "", strings.Fields(works[1])...)
		client.done(t, works[1])
		server.done(t, tt.server)

	}
	for _, args := range []string{"pingpong", "pingpong -n 30 -s 8K -c", "pingpong --service srq -q 3 -n 30",
		"perf write bw -n 30 -q 2 -s 4096", "perf send bw -R -n 30 -c UD -s 512", "perf read lat -n 30 -m 512"} {
		server, m := startIn(t, a, offered, strings.Fields(args)...)
		client, _ := startIn(t, a, "", strings.Fields(m[1])...)
		client.done(t, m[1])
		server.done(t, args)
	}
}

// TestCommand: the command that works has another local address, and is otherwise the one that was given.
func TestCommand(t *testing.T) {
	free := netip.MustParseAddr("127.0.0.2")
	for _, tt := range []struct{ args, local, want, daemon string }{
		{"pingpong -n 5 h", "", "pingpong -n 5 h --addr 127.0.0.2", "pingpong -n 5 h"},
		{"pingpong --addr 10.0.0.1 h", "", "pingpong h --addr 127.0.0.2", "pingpong h"},
		{"pingpong --netif=eth0 h", "", "pingpong h --addr 127.0.0.2", "pingpong h"},
		{"rping -s -a 10.0.0.1 -v", "10.0.0.1", "rping -s -a 127.0.0.2 -v", "rping -s -v"},
		{"rping -c --source=10.0.0.1 h", "10.0.0.1", "rping -c --source=127.0.0.2 h", "rping -c h"},
		{"rping -c -a 10.0.0.1", "", "rping -c -a 10.0.0.1 --addr 127.0.0.2", "rping -c -a 10.0.0.1"},
	} {
		args := strings.Fields("/bin/goroced " + tt.args)
		if got := command(args, tt.local, free); got != "goroced "+tt.want {
			t.Errorf("%s: %s, want goroced %s", tt.args, got, tt.want)
		}
		if got := command(args, tt.local, netip.Addr{}); got != "goroced "+tt.daemon {
			t.Errorf("%s: %s, want goroced %s", tt.args, got, tt.daemon)
		}
	}
	if got := command([]string{"goroced", "rping", "a b"}, "", free); got != "goroced rping 'a b' --addr 127.0.0.2" {
		t.Error(got)
	}
}

// TestDaemonHasThePort: where the daemon has the address and this program is to have a device of its own, the command
// that works goes through the daemon.
func TestDaemonHasThePort(t *testing.T) {
	addr := linktest.Loopback().String()
	dir := t.TempDir()
	t.Setenv("GOROCED_SOCKET", dir+"/s")
	daemon, _ := startUntil(t, "ready", "serve", "--addr", addr, "--socket", dir+"/s", "--admin", dir+"/a")
	p, code := goroced(t, "pingpong", "--addr", addr, "--own")
	if code != exitFailure || !strings.Contains(p.err.String(), "here: `goroced pingpong --daemon`") {
		t.Errorf("exit code %d, want %d and %q: %s", code, exitFailure, "here: `goroced pingpong --daemon`",
			p.err.String())
	}
	_ = daemon.cmd.Process.Signal(syscall.SIGTERM)
	daemon.wait(t)
}

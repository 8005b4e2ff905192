package main

import (
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/goroce/goroce/tests/linktest"
)

// TestTakesTheDaemons: tools that are not told whose device to use take the daemon's if it has the address, at either
// end, and say so in a line; else one of their own, without a word.
func TestTakesTheDaemons(t *testing.T) {
	d := newServed(t)
	d.isTheirs(t)
	said := regexp.MustCompile(`^goroced: this is device goroce_lo of the daemon at ` +
		regexp.QuoteMeta(d.client[1]) + `; `)
	other := linktest.Loopback().String()
	for _, c := range []struct{ args, addr string }{
		{"devinfo", d.addr}, {"devinfo -v", d.addr}, {"devinfo", other},
	} {
		p, code := goroced(t, append(strings.Fields(c.args), "--addr", c.addr)...)
		if code != 0 || said.MatchString(p.err.String()) != (c.addr == d.addr) {
			t.Errorf("%s %s: exit code %d, said %q; want 0, and it to say so: %v", c.args, c.addr, code, p.err.String(),
				c.addr == d.addr)
		}
	}
	for _, tool := range []string{"pingpong -c -n 50", "perf write bw -n 50"} {
		port := freePort(t)
		server := start(t, strings.Fields(tool+" -p "+port+" --addr "+d.addr)...)
		waitListening(t, port)
		client, code := goroced(t, strings.Fields(tool+" -p "+port+" --addr "+other+" 127.0.0.1")...)
		server.done(t, tool)
		if code != 0 || !said.MatchString(server.err.String()) || said.MatchString(client.err.String()) {
			t.Errorf("%s: exit code %d, the server said %q, the client %q; want 0, and the server to say so", tool,
				code, server.err.String(), client.err.String())
		}
	}
	server, port := serve(t, "rping", "-s", "-a", d.addr)
	client, code := goroced(t, strings.Fields("rping -c -C 3 -V -a "+d.addr+" -I "+other+" -p "+port)...)
	server.done(t, "rping -s")
	if code != 0 || !said.MatchString(server.err.String()) {
		t.Errorf("rping: exit code %d, the server said %q, the client %q; want 0, and the server to say so", code,
			server.err.String(), client.err.String())
	}
	if p, code := goroced(t, "devinfo", "--own", "--addr", d.addr); code != exitFailure ||
		!strings.Contains(p.err.String(), "is taken by goroce in process") {
		t.Errorf("--own: exit code %d, want %d and %q, said %q", code, exitFailure, "is taken by goroce in process",
			p.err.String())
	}
}

// TestDemoTakesTheDaemons: where a daemon has the port of its hosts, the demonstration is one of that daemon; not if it
// is to be its own.
func TestDemoTakesTheDaemons(t *testing.T) {
	ns, _ := linktest.NewVeth(t, 1500)
	dir := t.TempDir()
	t.Setenv("GOROCED_SOCKET", dir+"/s")
	daemon, _ := startIn(t, ns, "msg=ready", "serve", "--config", configFile(t, ""), "--socket", dir+"/s", "--admin",
		dir+"/a", "--addr", "127.0.0.1")
	for _, c := range []struct {
		args, want string
		code       int
	}{
		{"demo --json", "goroced: the hosts are clients of the daemon at " + dir + "/s", 0},
		{"demo --json --own", "127.0.0.1:4791: UDP port 4791 is taken", exitFailure},
		{"demo --json --drop 0.01", "127.0.0.1:4791: UDP port 4791 is taken", exitFailure},
	} {
		p, _ := startIn(t, ns, "", strings.Fields(c.args)...)
		if code := p.wait(t); code != c.code || !strings.Contains(p.err.String(), c.want) {
			t.Errorf("%s: exit code %d, want %d and %q: %s", c.args, code, c.code, c.want, p.err.String())
		}
	}
	_ = daemon.cmd.Process.Signal(syscall.SIGTERM)
	daemon.wait(t)
}

package main

import (
	"context"
	"io"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/goroce/goroce/tests/linktest"
	"github.com/goroce/goroce/tests/require"
)

// startIn is startUntil in a network namespace. With the pattern "" it does not wait.
func startIn(t *testing.T, ns *linktest.Namespace, pattern string, args ...string) (*process, []string) {
	t.Helper()
	// Not t.Context(), which ends before the cleanups that stop daemons.
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	w := &watcher{re: regexp.MustCompile(pattern), found: make(chan []string, 1)}
	p := &process{cmd: exec.CommandContext(ctx, program, args...)}
	p.cmd.Stdout, p.cmd.Stderr = io.MultiWriter(&p.out, w), io.MultiWriter(&p.err, w)
	if err := ns.Do(p.begin); err != nil {
		t.Fatal(err)
	}
	if pattern == "" {
		return p, nil
	}
	return p, w.until(t, p)
}

// severalInterfaces makes two hosts of two interfaces each and no default route; they reach one another by one of them.
func severalInterfaces(t *testing.T) (a, b *linktest.Namespace) {
	t.Helper()
	a, b = linktest.NewVeth(t, 1500)
	for _, ns := range []*linktest.Namespace{a, b} {
		ns.Command(t, "ip", "link", "add", "other", "type", "veth", "peer", "name", "end")
		ns.Command(t, "ip", "address", "add", "10.98.0.1/24", "dev", "other")
		ns.Command(t, "ip", "link", "set", "other", "up")
		ns.Command(t, "ip", "link", "set", "end", "up")
	}
	return a, b
}

// TestToward: a client that is told nothing but its server takes the interface and the address of the route there,
// though there are several interfaces and no default route.
func TestToward(t *testing.T) {
	t.Parallel()
	a, b := severalInterfaces(t)
	for _, tt := range []struct{ tool, client string }{
		{"pingpong -n 20", ""},
		{"pingpong -n 20", "-g 1"}, // of a table of three: the link-local address is 0
		{"perf write bw -n 20", ""},
		{"perf send lat -n 20", "-x 1"},
	} {
		t.Run(tt.tool+" "+tt.client, func(t *testing.T) {
			server, _ := startIn(t, b, "waiting for a client",
				strings.Fields(tt.tool+" --addr "+b.Addr4.String())...)
			client, _ := startIn(t, a, "", strings.Fields(tt.tool+" "+tt.client+" "+b.Addr4.String())...)
			client.done(t, "client")
			server.done(t, "server")
		})
	}
}

// TestSeveralInterfaces: a server cannot know which interface is meant, and offers each by its IPv4 address.
func TestSeveralInterfaces(t *testing.T) {
	t.Parallel()
	a, _ := severalInterfaces(t)
	p, _ := startIn(t, a, "", "pingpong")
	if code := p.wait(t); code != exitFailure ||
		!strings.Contains(p.err.String(), a.IfName+" ("+a.Addr4.String()+")") ||
		strings.Contains(p.err.String(), "other (fe80") || !strings.Contains(p.err.String(), "--netif") {
		t.Errorf("exit code %d, want %d, and %s with --netif: %s", code, exitFailure, a.IfName, p.err.String())
	}
}

// TestClosedPort: a client hears from the kernel that nobody speaks RoCEv2 there. Only an ICMP error, which is at once,
// has this text: the connection manager, when its requests have had no answer for ten seconds, says "no answer to REQ".
// TestClosedPort of package rdmacm is the same without time.
func TestClosedPort(t *testing.T) {
	t.Parallel()
	for _, tool := range []string{"rping -c -a ", "rstream -s "} {
		closed := linktest.Loopback().String()
		p, code := goroced(t, strings.Fields(tool+closed+" --addr "+linktest.Loopback().String())...)
		if code != exitFailure || !strings.Contains(p.err.String(), "UDP port 4791 of "+closed+" is closed") {
			t.Errorf("%s: exit code %d, want %d and %q: %s", tool, code, exitFailure,
				"UDP port 4791 of "+closed+" is closed", p.err.String())
		}
	}
}

// TestAbsentHost: a tool says that nobody answers ARP, after waiting.After, which is less than a second, and ends when
// the kernel gives up: after 1.8 s here. If the limits of the tools ended them, after ten, they would say "no answer to
// REQ" and "i/o timeout".
func TestAbsentHost(t *testing.T) {
	t.Parallel()
	a, _ := linktest.NewVeth(t, 1500)
	a.Command(t, "sysctl", "-w", "net/ipv4/neigh/"+a.IfName+"/retrans_time_ms=600") // three times
	const waits = `waiting for 10\.99\.0\.77\S* to .*; 10\.99\.0\.77 does not answer ARP on gr`
	for _, tt := range []struct{ args, want string }{
		{"rping -c -a 10.99.0.77", "10.99.0.77 cannot be reached: it does not answer ARP"},
		{"pingpong 10.99.0.77", "no route to host; is the address right and the host up?"},
	} {
		p, _ := startIn(t, a, waits, strings.Fields(tt.args)...)
		if code := p.wait(t); code != exitFailure || !strings.Contains(p.err.String(), tt.want) {
			t.Errorf("%s: exit code %d, want %d and %q: %s", tt.args, code, exitFailure, tt.want, p.err.String())
		}
	}
}

// TestInterrupted: a client that waits for its server ends with the exit code of Ctrl-C, and says what it was doing.
func TestInterrupted(t *testing.T) {
	t.Parallel()
	a, b := linktest.NewVeth(t, 1500)
	b.Command(t, "ip", "link", "set", b.IfName, "arp", "off") // nobody answers, and the kernel asks for long
	a.Command(t, "sysctl", "-w", "net/ipv4/neigh/"+a.IfName+"/retrans_time_ms=60000")
	p, _ := startIn(t, a, "waiting for ", "rping", "-c", "-a", b.Addr4.String())
	if err := p.cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if code := p.wait(t); code != 130 || !strings.Contains(p.err.String(),
		"goroced: interrupted while waiting for "+b.Addr4.String()+":7174 to answer the request\n") {
		t.Errorf("exit code %d, want 130 and %q: %s", code,
			"goroced: interrupted while waiting for "+b.Addr4.String()+":7174 to answer the request\n",
			p.err.String())
	}
}

// TestPortNews: the log of a daemon says what happens to its port, and each thing once.
func TestPortNews(t *testing.T) {
	t.Parallel()
	a, _ := linktest.NewVeth(t, 1500)
	dir := t.TempDir()
	p, _ := startIn(t, a, "msg=ready", "serve", "--config", configFile(t, ""), "--socket", filepath.Join(dir, "s"),
		"--admin", filepath.Join(dir, "a"), "--netif", a.IfName)
	t.Cleanup(func() {
		_ = p.cmd.Process.Signal(syscall.SIGTERM)
		p.done(t, "the daemon")
	})
	if log := p.err.String(); !regexp.MustCompile("netif=" + a.IfName + ` addresses="\[.*10\.99\.0\.1 `).MatchString(log) {
		t.Errorf("got %q, want the interface and the addresses of the device", log)
	}
	for _, step := range []struct{ change, news string }{
		{"address add 10.99.7.7/24 dev", `level=INFO msg="an address has come".* address=10\.99\.7\.7`},
		{"address del 10.99.7.7/24 dev", `level=INFO msg="an address is gone".* address=10\.99\.7\.7`},
		{"link set mtu 600", `level=INFO msg="the active MTU has changed".* was=1024 is=512`},
		{"link set down", `level=WARN msg="the port is down`},
		{"link set up", `level=INFO msg="the port is active"`},
	} {
		a.Command(t, "ip", append(strings.Fields(step.change), a.IfName)...)
		news := regexp.MustCompile(step.news)
		require.Until(t, "the log has "+step.news, func() bool { return news.MatchString(p.err.String()) })
		if n := len(news.FindAllString(p.err.String(), -1)); n != 1 {
			t.Errorf("after %s: got %d lines of the log with %q, want 1:\n%s", step.change, n, step.news,
				p.err.String())
		}
	}
}

package main

import (
	"context"
	"io"
	"net"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/goroce/goroce/tests/linktest"
)

// watcher waits for a pattern in what a process prints.
type watcher struct {
	mu    sync.Mutex
	re    *regexp.Regexp // nil when it was found
	said  []byte
	found chan []string // gets the first match
}

func (w *watcher) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.re != nil {
		w.said = append(w.said, b...)
		if m := w.re.FindStringSubmatch(string(w.said)); m != nil {
			w.found <- m
			w.re = nil
		}
	}
	return len(b), nil
}

// startUntil runs goroced with a time limit and returns the first match in what it
// prints.
func startUntil(t *testing.T, pattern string, args ...string) (*process, []string) {
	t.Helper()
	return passUntil(t, pattern, nil, program, args...)
}

// passUntil does so with any program, to which it passes files as descriptors 3 and up.
func passUntil(t *testing.T, pattern string, files []*os.File, name string, args ...string) (*process, []string) {
	t.Helper()
	// Not t.Context(), which ends before the cleanups that stop daemons.
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	t.Cleanup(cancel)
	w := &watcher{re: regexp.MustCompile(pattern), found: make(chan []string, 1)}
	p := &process{cmd: exec.CommandContext(ctx, name, args...)}
	p.cmd.ExtraFiles = files
	p.cmd.Stdout, p.cmd.Stderr = io.MultiWriter(&p.out, w), io.MultiWriter(&p.err, w)
	if err := p.begin(); err != nil {
		t.Fatal(err)
	}
	return p, w.until(t, p)
}

// until returns the first match, once it is there. The process must not end before.
func (w *watcher) until(t *testing.T, p *process) []string {
	t.Helper()
	select {
	case m := <-w.found:
		return m
	case <-p.ended:
	}
	select {
	case m := <-w.found:
		return m
	default:
		t.Fatalf("%v ends (%v), and does not say %q:\n%s%s", p.cmd.Args, p.failed, w.re, p.out.String(), p.err.String())
		return nil
	}
}

// serve runs a server of rdma_cm on a free port and returns when it listens.
func serve(t *testing.T, args ...string) (p *process, port string) {
	t.Helper()
	p, m := startUntil(t, `waiting for a client on \S+:(\d+):`, append(args, "-p", "0")...)
	return p, m[1]
}

// done checks that a process succeeded and printed all of these.
func (p *process) done(t *testing.T, name string, want ...string) {
	t.Helper()
	if code := p.wait(t); code != 0 {
		t.Errorf("%s: exit code %d, want 0: %s", name, code, p.err.String())
	}
	for _, w := range want {
		if !strings.Contains(p.out.String()+p.err.String(), w) {
			t.Errorf("%s does not say %q:\n%s%s", name, w, p.out.String(), p.err.String())
		}
	}
}

func TestRping(t *testing.T) {
	for _, flags := range []string{"", "-S 1 -d", "-S 65536 -V -q", "-V --drop 0.05 --seed 7 --ack-timeout 16"} {
		t.Run(flags, func(t *testing.T) {
			t.Parallel()
			addr := linktest.Loopback().String()
			server, port := serve(t, "rping", "-s", "-a", addr, "-v")
			args := append([]string{"rping", "-c", "-a", addr, "-I", linktest.Loopback().String(), "-p", port, "-C",
				"20", "-v"}, strings.Fields(flags)...)
			start(t, args...).done(t, "client", "ping data: ", "client DISCONNECT EVENT...\n")
			server.done(t, "server", "server ping data: ", "server DISCONNECT EVENT...\n")
			if got := strings.Count(server.out.String(), "\n"); got != 20 {
				t.Errorf("the server printed %d lines, want 20", got)
			}
		})
	}
}

// TestRpingPersistent: a server for many clients ends when it is interrupted.
func TestRpingPersistent(t *testing.T) {
	addr := linktest.Loopback().String()
	server, port := serve(t, "rping", "-s", "-P", "--addr", addr)
	var clients []*process
	for range 3 {
		clients = append(clients, start(t, "rping", "-c", "-a", addr, "--addr", linktest.Loopback().String(), "-p",
			port, "-C", "50", "-V"))
	}
	for _, c := range clients {
		c.done(t, "client", "client DISCONNECT EVENT...\n")
	}
	if err := server.cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if code := server.wait(t); code != exitSignal+int(syscall.SIGINT) || !strings.Contains(server.err.String(),
		"goroced: interrupted") {
		t.Errorf("exit code %d, want %d and %q: %s", code, exitSignal+int(syscall.SIGINT), "goroced: interrupted",
			server.err.String())
	}
}

// TestRpingServerDies: the client says so, in time.
func TestRpingServerDies(t *testing.T) {
	t.Parallel()
	addr := linktest.Loopback().String()
	server, port := serve(t, "rping", "-s", "-a", addr)
	client, _ := startUntil(t, "rdma-ping-9: ", "rping", "-c", "-a", addr, "-I", linktest.Loopback().String(), "-p",
		port, "--ack-timeout", "15", "--timeout", "1s", "-v")
	if err := server.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	server.wait(t)
	if code := client.wait(t); code != exitFailure || strings.Count(client.complaint(), "\n") != 1 ||
		!strings.Contains(client.err.String(), addr) {
		t.Errorf("exit code %d, want %d and a line with %q: %s", code, exitFailure, addr, client.err.String())
	}
}

func TestRstream(t *testing.T) {
	for _, flags := range []string{
		"-C 10", "-S 100000 -C 3 -T v -T async -T b", "-I 5 -C 5 -S 8 -T verify -B 8192 -i 32 -k 2",
		"-I 3 -C 1 -T v --drop 0.02 --ack-timeout 16",
		"--iomap -C 10", "--iomap -S 100000 -I 2 -C 3 -T v -T n",
	} {
		t.Run(flags, func(t *testing.T) {
			t.Parallel()
			addr := linktest.Loopback().String()
			server, port := serve(t, append([]string{"rstream", "-f", "ip", "-b", addr}, strings.Fields(flags)...)...)
			client := start(t, append([]string{"rstream", "-s", addr, "-b", linktest.Loopback().String(), "-p", port},
				strings.Fields(flags)...)...)
			client.done(t, "client", "name      bytes ", "\ncustom ")
			server.done(t, "server", "name      bytes ", "\ncustom ")
		})
	}
}

// TestConnectErrors is TestErrors for the subcommands that connect by rdma_cm.
func TestConnectErrors(t *testing.T) {
	t.Parallel()
	own, silent := linktest.Loopback().String(), linktest.Loopback().String()
	hold, err := net.ListenPacket("udp", net.JoinHostPort(silent, "4791"))
	if err != nil {
		t.Fatal(err)
	}
	defer hold.Close()
	for _, c := range []struct {
		args string
		code int
		want string
	}{
		{"rping", exitUsage, "neither -s nor -c"},
		{"rping -s -c", exitUsage, "--client"},
		{"rping -c --addr " + own, exitUsage, "(-a)"},
		{"rping -s -S 65537 --addr " + own, exitUsage, "1 to 65536"},
		{"rping -s -I " + own + " --addr " + own, exitUsage, "-I is for -c"},
		{"rping -c -P -a " + own + " --addr " + own, exitUsage, "-P is for -s"},
		{"rping -s -a 192.0.2.77", exitFailure, "192.0.2.77"},
		{"rping -s -a 192.0.2.77 --addr " + own, exitFailure, "-a takes an address of the device"},
		{"rping -c -a no-such-host..invalid --addr " + own, exitFailure, "no-such-host..invalid"},
		{"rping -c -a " + silent + " --timeout 200ms --addr " + own, exitFailure,
			"no answer to REQ"},
		{"rping -s --drop 1 --addr " + own, exitUsage, "--drop is 1"},
		{"rping -s --addr " + own + " --netif lo", exitFailure, "one of them"},
		{"rstream -T s", exitUsage, "not supported"},
		{"rstream -T fork", exitUsage, "not supported"},
		{"rstream -T x", exitUsage, "v or verify"},
		{"rstream -f gid", exitUsage, "not supported"},
		{"rstream -f xns", exitUsage, "name, ip, ipv6"},
		{"rstream -S many", exitUsage, "or all"},
		{"rstream -S 0 --addr " + own, exitUsage, "1 to 1073741824"},
		{"rstream -f ip -s localhost --addr " + own, exitUsage, "only without -f ip"},
		{"rstream -B 1 -S 1 --addr " + own, exitFailure, "4 KiB"},
		{"rstream -s " + silent + " --timeout 200ms --addr " + own, exitFailure,
			"no answer to REQ"},
	} {
		complains(t, c.args, c.code, c.want)
	}
}

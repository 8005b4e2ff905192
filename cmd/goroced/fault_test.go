package main

import (
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/goroce/goroce/cmd/goroced/internal/admin"
	"github.com/goroce/goroce/roce"
	"github.com/goroce/goroce/roce/host"
	"github.com/goroce/goroce/tests/linktest"
	"github.com/goroce/goroce/tests/require"
)

// serveAdmin opens a live device "a" and returns its admin socket.
func serveAdmin(t *testing.T) string {
	t.Helper()
	var live host.Live
	dev, err := host.Open(host.Options{Addrs: []netip.Addr{linktest.Loopback()}, Live: &live,
		Device: roce.Options{Name: "a"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dev.Close() })
	socket := filepath.Join(t.TempDir(), "admin")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	admin.Register(mux, &live)
	server := &http.Server{Handler: mux}
	go server.Serve(l)
	t.Cleanup(func() { server.Close() })
	return socket
}

func TestFault(t *testing.T) {
	socket := " --admin " + serveAdmin(t)
	for _, c := range []struct{ args, want string }{
		{"fault add drop --qp 0x11 --psn 5-9 -n 1 --seed 3 --for 1h",
			"a fault 1: drop qp 0x11 psn 5-9 count 1 seed 3 ttl 1h0m0s left "},
		{"fault add delay --delay 5ms --opcode ack --direction in -p 0.5 --seed 4 -d a",
			"a fault 2: delay by 5ms direction in opcode ack probability 0.5 seed 4 ttl 10m0s left "},
		{"fault add drop --for 0s --seed 5", "a fault 3: drop seed 5; matched 0, hit 0\n"},
		{"fault list --json", `"opcode": "ack"`},
		{"fault clear 1", "1 removed\n"},
		{"fault list", "a fault 2: delay"},
		{"fault clear", "2 removed\n"},
		{"fault list", ""},
	} {
		if out := success(t, strings.Fields(c.args+socket)...); !strings.HasPrefix(out, c.want) &&
			!strings.Contains(c.args, "--json") || !strings.Contains(out, c.want) {
			t.Errorf("goroced %s: %q, want %q", c.args, out, c.want)
		}
	}
	for _, c := range []struct {
		args string
		code int
		want string
	}{
		{"fault add explode" + socket, exitUsage, `"drop","delay","duplicate","corrupt"`},
		{"fault add drop --opcode sned" + socket, exitUsage, `"send"`},
		{"fault add drop -d b" + socket, exitFailure, "allowed: a"},
		{"fault clear 7" + socket, exitFailure, "list them"},
		{"fault clear 0" + socket, exitFailure, "list them"},
		{"fault list --admin /nosuch/socket", exitFailure, "goroced serve"},
		{"capture --peer x" + socket, exitFailure, "an IP address"},
	} {
		p, code := goroced(t, strings.Fields(c.args)...)
		if code != c.code || !strings.Contains(p.err.String(), c.want) || strings.Count(p.err.String(), "\n") != 1 {
			t.Errorf("goroced %s: exit code %d, want %d: %q, want %q in one line", c.args, code, c.code, p.err.String(),
				c.want)
		}
	}
}

// waitFile waits until a capture has begun.
func waitFile(t *testing.T, file string) {
	t.Helper()
	require.Until(t, "the capture begins", func() bool {
		st, err := os.Stat(file)
		return err == nil && st.Size() > 0
	})
}

// An interrupted capture is a success and a whole file.
func TestCaptureInterrupted(t *testing.T) {
	file := filepath.Join(t.TempDir(), "x.pcapng")
	p := start(t, "capture", "-o", file, "--qp", "0x11", "--admin", serveAdmin(t))
	waitFile(t, file)
	if err := p.cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if code := p.wait(t); code != 0 || !strings.Contains(p.err.String(), "0 packets captured, 0 lost") {
		t.Errorf("exit code %d: %q", code, p.err.String())
	}
	linktest.Tshark(t, file, 0)
}

// TestFaultSeen: whoever looks at a daemon sees that faults disturb its packets, and the log has them, also when they
// end by themselves.
func TestFaultSeen(t *testing.T) {
	d := newServed(t)
	status := func() string { return success(t, with("status", d.admin)...) }
	if out := status(); strings.Contains(out, "faults") {
		t.Errorf("status of a daemon without faults: %q", out)
	}
	success(t, with("fault add drop -p 0.5 --seed 1", d.admin)...)
	if out, want := status(), "faults are injected into its packets: 1"; !strings.Contains(out, want) {
		t.Errorf("got status %q, want %q", out, want)
	}
	success(t, with("fault add corrupt --for 1ms --seed 2", d.admin)...)
	for _, want := range []string{"a fault was added", "fault 1: drop", "a fault has ended", "fault 2: corrupt"} {
		require.Until(t, "the log says "+want, func() bool { return strings.Contains(d.err.String(), want) })
	}
}

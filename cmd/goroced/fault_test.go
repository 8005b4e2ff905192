package main

import (
	"encoding/json"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

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
		{"fault add limit --rate 2.5G --buffer 3ms --seed 6 --for 0",
			"a fault 4: limit to 2500000000 bit/s buffer 3ms seed 6; "},
		{"fault add limit --rate 10M --seed 6 --for 0", "a fault 5: limit to 10000000 bit/s buffer 1ms seed 6; "},
		{"fault add drop --burst-begin 0.01 --burst-end 0.5 --larger 4K -p 0.9 --seed 6 --for 0",
			"a fault 6: drop in bursts that begin with 0.01 and end with 0.5 larger than 4096 probability 0.9 seed 6"},
		{"fault add delay --jitter 5ms --seed 6 --for 0", "a fault 7: delay jitter 5ms seed 6; "},
		{"fault add reorder --seed 6 --for 0", "a fault 8: reorder by 1ms seed 6; "},
		{"fault add mark --seed 6 --for 0", "a fault 9: mark seed 6; "},
		{"fault add truncate --seed 6 --for 0", "a fault 10: truncate direction in seed 6; "},
		{"fault list --json", `"opcode": "ack"`},
		{"fault list --json", `"burst_end": 0.5`},
		{"fault list --json", `"rate": 2500000000`},
		{"fault clear 1", "1 removed\n"},
		{"fault list", "a fault 2: delay"},
		{"fault clear", "9 removed\n"},
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
		{"fault add explode" + socket, exitUsage, `"drop","delay","duplicate","corrupt","reorder","mark"`},
		{"fault add limit" + socket, exitFailure, "1000000 to 1000000000000 bit/s"},
		{"fault add limit --rate 10Mbit" + socket, exitUsage, "100M or 2.5G"},
		{"fault add drop --jitter 1ms" + socket, exitFailure, "unless the action is delay"},
		{"fault add drop --burst-begin 0.1" + socket, exitFailure, "Burst is begin 0.1, end 0"},
		{"fault add truncate --direction out" + socket, exitFailure, "the action is truncate"},
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
		t.Errorf("exit code %d, want 0 and %q: %q", code, "0 packets captured, 0 lost", p.err.String())
	}
	linktest.Tshark(t, file, 0)
}

// TestFaultKinds: each kind of fault disturbs the packets of two programs at a daemon, which play on, and is counted.
func TestFaultKinds(t *testing.T) {
	for _, c := range []struct {
		add     string
		counter string        // that tells of it, "" if none is certain to
		least   time.Duration // of the game
	}{
		{"drop -p 0.05", "", 0},
		{"drop --larger 1000 -n 3", "", 0},
		{"drop --burst-begin 0.02 --burst-end 0.5", "", 0},
		{"delay --delay 100us", "", 40 * 2 * 100 * time.Microsecond},
		{"delay --jitter 500us", "out_of_seq_request", 0},
		{"duplicate -p 0.5", "duplicate_request", 0},
		{"corrupt -p 0.02", "rx_icrc_errors", 0},
		{"reorder -p 0.2", "out_of_seq_request", 0},
		{"mark", "np_cnp_sent", 0},
		{"truncate -p 0.02", "rx_icrc_errors", 0},
		{"limit --rate 20M --buffer 20ms", "", 40 * 2 * 3000 * 8 * time.Second / 20_000_000},
	} {
		t.Run(c.add, func(t *testing.T) {
			t.Parallel()
			d := newServed(t)
			success(t, with("fault add "+c.add+" --seed 5", d.admin)...)
			game := "pingpong -c -n 40 -s 3000 --ack-timeout 16 -p " + freePort(t)
			server, _ := startUntil(t, "waiting for a client", with(game, d.client)...)
			began := time.Now()
			success(t, with(game+" "+d.addr, d.client)...)
			if took := time.Since(began); took < c.least {
				t.Errorf("it took %v, want at least %v", took, c.least)
			}
			if code := server.wait(t); code != 0 {
				t.Errorf("the server: exit code %d, want 0: %s", code, server.err.String())
			}
			var faults []admin.Fault
			if err := json.Unmarshal([]byte(success(t, with("fault list --json", d.admin)...)), &faults); err != nil {
				t.Fatal(err)
			}
			if len(faults) != 1 || faults[0].Hits == 0 || faults[0].Count > 0 && faults[0].Hits != faults[0].Count {
				t.Errorf("got faults %+v, want one with hits", faults)
			}
			var stat map[string]map[string]int64
			if err := json.Unmarshal([]byte(success(t, with("stat --json", d.admin)...)), &stat); err != nil {
				t.Fatal(err)
			}
			if c.counter != "" && stat["goroce_lo"][c.counter] == 0 {
				t.Errorf("%s is 0, want more, of %v", c.counter, stat)
			}
		})
	}
}

// TestFaultSeen: whoever looks at a daemon sees that faults disturb its packets, and the log has them, also when they
// end by themselves.
func TestFaultSeen(t *testing.T) {
	d := newServed(t)
	status := func() string { return success(t, with("status", d.admin)...) }
	if out := status(); strings.Contains(out, "faults") {
		t.Errorf("status of a daemon without faults: %q, want nothing of faults", out)
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

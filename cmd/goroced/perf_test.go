package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/goroce/goroce/cmd/goroced/internal/perf"
	"github.com/goroce/goroce/tests/linktest"
)

// TestPerf runs both ends, with the options of both as the help has them.
func TestPerf(t *testing.T) {
	for _, c := range []struct{ both, client string }{
		{"write bw -n 200 -l 2", "-t 16 -Q 4"},
		{"write bw -n 200 -c UC -s 100 -q 2 -F", "-I 100 --report_gbits"},
		{"write bw -D 1 -m 1024", "-u 16 --retry_count 3"},
		{"write lat -n 200", ""},
		{"send bw -n 20 -a -s 4096 -b -e", "-r 64"},
		{"send bw -n 200 --connection=ud -s 512", "-x 0"},
		{"send lat -n 200 -c UC -e", ""},
		{"read bw -n 200 -s 4096", "-o 4"},
		{"read lat -n 200 --drop 0.01 --seed 3 -u 16", ""},
		{"atomic bw -n 200 -A CMP_AND_SWAP", "--link udp -d soft"},
		{"atomic lat -n 200", "--timeout 20s"},
		{"write bw -R -n 200 -q 2", "-x 0"},
		{"send lat -R -n 200 -c UD", "--report_gbits"},
	} {
		t.Run(c.both, func(t *testing.T) {
			t.Parallel()
			port, addr := freePort(t), linktest.Loopback().String()
			args := append([]string{"perf", "-p", port, "-u", "18"}, strings.Fields(c.both)...)
			server, _ := startUntil(t, "waiting for a client", append(args, "--addr", addr)...)
			args = append(args, strings.Fields(c.client)...)
			client := start(t, append(args, "--out_json=-", "--addr", linktest.Loopback().String(), addr)...)
			for name, p := range map[string]*process{"server": server, "client": client} {
				if code := p.wait(t); code != 0 {
					t.Fatalf("%s: exit code %d, want 0:\n%s%s", name, code, p.out.String(), p.err.String())
				}
			}
			var rep perf.Report
			if err := json.Unmarshal(client.out.Bytes(), &rep); err != nil || len(rep.Results) == 0 ||
				rep.Results[0].Iterations == 0 {
				t.Errorf("the client's report: %v, want a result\n%s", err, client.out.String())
			}
			if !strings.Contains(server.out.String(), rep.Info.Test) {
				t.Errorf("the server ran no %s:\n%s", rep.Info.Test, server.out.String())
			}
		})
	}
}

// TestPerfServe: a server that stays serves one client after the other, prints a report of each in a line, and ends
// with SIGINT as it should.
func TestPerfServe(t *testing.T) {
	port, addr := freePort(t), linktest.Loopback().String()
	server, _ := startUntil(t, "waiting for clients", "perf", "serve", "-p", port, "--addr", addr, "--json",
		"--max-size", "64K")
	client := []string{"--json", "-u", "18", "-p", port, "--addr", linktest.Loopback().String(), addr}
	for _, args := range []string{"perf write bw -n 200", "perf send lat -n 100 -s 64", "perf send bw -n 100 -b -q 2"} {
		var rep perf.Report
		out := success(t, append(strings.Fields(args), client...)...)
		if err := json.Unmarshal([]byte(out), &rep); err != nil || len(rep.Results) != 1 {
			t.Errorf("goroced %s: %v, want one result, printed\n%s", args, err, out)
		}
	}
	want := "-s asks for 65537 bytes of a message, at most 65536 are allowed (--max-size there)"
	if p, code := goroced(t, append(strings.Fields("perf write bw -s 65537"), client...)...); code != exitFailure ||
		!strings.Contains(p.err.String(), want) {
		t.Errorf("too long: exit code %d, %s\nwant %d, %q", code, p.err.String(), exitFailure, want)
	}
	if err := server.cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if code := server.wait(t); code != 0 || !strings.Contains(server.err.String(), want) {
		t.Errorf("the server: exit code %d, want 0 and %q: %s", code, want, server.err.String())
	}
	if got := strings.Split(strings.TrimSpace(server.out.String()), "\n"); len(got) != 3 {
		t.Errorf("the server printed\n%s\nwant three lines", server.out.String())
	}
}

// TestPingpongServe: a server that stays plays with one client after the other, and ends with SIGINT as it should.
func TestPingpongServe(t *testing.T) {
	port, addr := freePort(t), linktest.Loopback().String()
	server, _ := startUntil(t, "waiting for clients", "pingpong", "serve", "-p", port, "--addr", addr)
	client := []string{"-n", "50", "-p", port, "--ack-timeout", "18", "--addr", linktest.Loopback().String(), addr}
	for _, args := range []string{"pingpong -c -s 64K", "pingpong --service ud", "pingpong --service srq -q 3"} {
		if out := success(t, append(strings.Fields(args), client...)...); !strings.Contains(out, "50 iters in ") {
			t.Errorf("goroced %s, want %q, printed\n%s", args, "50 iters in ", out)
		}
	}
	if err := server.cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if code := server.wait(t); code != 0 || strings.Count(server.out.String(), "50 iters in ") != 3 {
		t.Errorf("the server: exit code %d, %s, want 0 and 3 results\n%s", code, server.err.String(),
			server.out.String())
	}
}

// TestPerfFiles: a report, a CPU profile and a capture where they were asked for.
func TestPerfFiles(t *testing.T) {
	port, addr := freePort(t), linktest.Loopback().String()
	server, _ := startUntil(t, "waiting for a client", "perf", "write", "bw", "-p", port, "--addr", addr, "-n", "50")
	dir := t.TempDir()
	report, profile, capture := filepath.Join(dir, "r.json"), filepath.Join(dir, "cpu.out"),
		filepath.Join(dir, "p.pcapng")
	out := success(t, "perf", "write", "bw", "-p", port, "--addr", linktest.Loopback().String(), "-n", "50",
		"--out_json="+report, "--cpuprofile", profile, "--pcap", capture, addr)
	if code := server.wait(t); code != 0 || !strings.Contains(out, " #bytes     #iterations ") {
		t.Errorf("exit code %d: %s, want 0 and a table\n%s", code, server.err.String(), out)
	}
	for _, name := range []string{report, profile, capture} {
		if info, err := os.Stat(name); err != nil || info.Size() == 0 {
			t.Errorf("%s: %v, %v; want it not empty", name, info, err)
		}
	}
}

// TestPerfErrors: one line on standard error, the right exit code, and what to do.
func TestPerfErrors(t *testing.T) {
	own := " --addr " + linktest.Loopback().String()
	for _, c := range []struct {
		args string
		code int
		want string
	}{
		{"perf", exitUsage, "<op>"},
		{"perf flush bw", exitUsage, "send, write, read, atomic, serve"},
		{"perf write", exitUsage, "<test>"},
		{"perf serve -s 64K", exitUsage, "-s is for the clients"},
		{"perf serve bw", exitUsage, "\"bw\""},
		{"perf serve --max-size 0", exitUsage, "--max-size"},
		{"perf write rate", exitUsage, "bw, lat"},
		{"perf write bw -c DC", exitUsage, "RC, UC, UD"},
		{"perf atomic bw -A NAND", exitUsage, "FETCH_AND_ADD, CMP_AND_SWAP"},
		{"perf write bw -R -p 1 192.0.2.1 --timeout 200ms" + own, exitFailure, "no answer to REQ"},
		{"perf read bw -c UC" + own, exitUsage, "[RC] for read bw"},
		{"perf write bw -m 1500" + own, exitUsage, "256, 512, 1024, 2048, 4096"},
		{"perf write bw --drop 1" + own, exitUsage, "--drop is 1"},
		{"perf write bw -p 1 127.0.0.1" + own, exitFailure,
			"start it there first: `goroced perf write bw`, or `ib_write_bw -x INDEX`"},
		{"perf write bw --cpuprofile /nosuch/file" + own, exitFailure, "/nosuch/file"},
	} {
		p, code := goroced(t, strings.Fields(c.args)...)
		if code != c.code || !strings.Contains(p.err.String(), c.want) || strings.Count(p.err.String(), "\n") != 1 {
			t.Errorf("goroced %s: exit code %d, want %d: %q, want %q in one line", c.args, code, c.code, p.err.String(),
				c.want)
		}
	}
}

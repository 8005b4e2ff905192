package main

import (
	"encoding/json"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/goroce/goroce/tests/linktest"
	"github.com/goroce/goroce/tests/require"
)

// TestDoctor: exit code 1 and one line on standard error if something fails.
func TestDoctor(t *testing.T) {
	newServed(t).isTheirs(t)
	addr := linktest.Loopback().String()
	if out := success(t, "doctor", "--addr", addr, addr); !strings.Contains(out,
		"ok    port       UDP port 4791 is free\n") ||
		!strings.Contains(out, "ok    route      "+addr+" by lo") || !strings.Contains(out, " 0 fail\n") {
		t.Errorf("doctor, want %q, %q and %q:\n%s", "ok    port       UDP port 4791 is free\n",
			"ok    route      "+addr+" by lo", " 0 fail\n", out)
	}
	hold, err := net.ListenPacket("udp", net.JoinHostPort(addr, "4791"))
	if err != nil {
		t.Fatal(err)
	}
	defer hold.Close()
	p, code := goroced(t, "doctor", "--addr", addr, "--json")
	var report struct {
		OK       bool
		Findings []struct{ Check, Status, Text, Remedy, Command string }
	}
	if err := json.Unmarshal(p.out.Bytes(), &report); err != nil || report.OK || code != exitFailure {
		t.Errorf("doctor --json: exit code %d, want %d, %v:\n%s", code, exitFailure, err, p.out.String())
	}
	failed := 0
	for _, f := range report.Findings {
		if f.Status == "fail" {
			failed++
			if f.Check != "port" || !strings.HasPrefix(f.Command, "kill ") {
				t.Errorf("%+v, want the port, and to kill its owner", f)
			}
		}
	}
	if failed != 1 || strings.Count(p.err.String(), "\n") != 1 {
		t.Errorf("%d failures, want 1 in one line; standard error:\n%s", failed, p.err.String())
	}
}

// TestDoctorPeer: the peer is a name or an address; what is neither is said in plain words.
func TestDoctorPeer(t *testing.T) {
	newServed(t).isTheirs(t)
	addr, peer := linktest.Loopback().String(), linktest.Loopback().String()
	for _, c := range []struct {
		peer string
		code int
		want string
	}{
		{"localhost", 0, "ok    route      127.0.0.1 by lo"},
		{addr, 0, "ok    peer       " + addr + " answers in "},
		{peer, exitFailure, "fail  peer       nobody has UDP port 4791 of " + peer + ": "},
		{"no-such-host..invalid", exitFailure,
			"goroced: doctor: lookup no-such-host..invalid: no such host; give the peer's IP address, or a name "},
	} {
		p, code := goroced(t, "doctor", "--addr", addr, c.peer)
		if c.peer == "localhost" { // whether anybody speaks there is not this test's
			code = c.code
		}
		if said := p.out.String() + p.err.String(); code != c.code || !strings.Contains(said, c.want) {
			t.Errorf("doctor %s: exit code %d, want %d and %q:\n%s", c.peer, code, c.code, c.want, said)
		}
	}
}

// TestDoctorNext: the commands that it ends with work, on a machine that has loopback only.
func TestDoctorNext(t *testing.T) {
	t.Parallel()
	ns, _ := linktest.NewVeth(t, 1500)
	ns.Command(t, "ip", "link", "set", ns.IfName, "down")
	p, _ := startIn(t, ns, "", "doctor", "--addr", "127.0.0.1", "--json")
	p.done(t, "doctor")
	var report struct{ Next []struct{ Command string } }
	if err := json.Unmarshal(p.out.Bytes(), &report); err != nil || len(report.Next) < 2 {
		t.Fatalf("%v, want at least 2 next steps:\n%s", err, p.out.String())
	}
	server, _ := startIn(t, ns, "waiting", strings.Fields(report.Next[0].Command)[1:]...)
	client, _ := startIn(t, ns, "", strings.Fields(report.Next[1].Command)[1:]...)
	client.done(t, report.Next[1].Command)
	server.done(t, report.Next[0].Command)
}

// TestDoctorUnprivileged: an ordinary user lacks capabilities, and a small limit of
// memory to lock; the remedies give both.
func TestDoctorUnprivileged(t *testing.T) {
	require.Root(t)
	setpriv := require.Command(t, "setpriv")
	require.Command(t, "setcap")
	dir, err := os.MkdirTemp("", "goroced-doctor") // nobody may not enter that of the test
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	own := filepath.Join(dir, "goroced")
	copyProgram(t, own)
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	newServedIn(t, dir, "--set", "socket_mode=0666").isTheirs(t)
	addr := linktest.Loopback().String()
	shell := func(line string) string {
		out, err := exec.Command(setpriv, "--reuid=65534", "--regid=65534", "--clear-groups", "--inh-caps=-all", "sh",
			"-c", line).CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v\n%s", line, err, out)
		}
		return string(out)
	}
	doctor := own + " doctor --addr " + addr
	out := shell("ulimit -l 64; " + doctor)
	for _, want := range []string{"warn  links      rawsock lacks CAP_NET_RAW\n",
		"warn  links      afxdp lacks CAP_NET_RAW, CAP_NET_ADMIN, CAP_BPF\n",
		"warn  memlock    64 KiB"} {
		if !strings.Contains(out, want) {
			t.Errorf("nothing says %q:\n%s", want, out)
		}
	}
	remedy := regexp.MustCompile(`setcap .*cap_bpf\S* (\\\n *)?\S*`).FindString(out)
	if out, err := exec.Command("sh", "-c", remedy).CombinedOutput(); err != nil {
		t.Fatalf("%q: %v\n%s", remedy, err, out)
	}
	if out := shell(doctor); !strings.Contains(out, "ok    links      afxdp has") ||
		!strings.Contains(out, "ok    links      rawsock has") {
		t.Errorf("after %s, want %q and %q:\n%s", remedy, "ok    links      afxdp has", "ok    links      rawsock has",
			out)
	}
}

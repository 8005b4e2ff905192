package main

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/goroce/goroce/cmd/goroced/internal/admin"
	"github.com/goroce/goroce/tests/linktest"
)

// configFile writes a configuration.
func configFile(t *testing.T, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "goroced.toml")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// TestServe: the daemon opens its device, shows it and its figures on the admin socket,
// and ends when it is told to.
func TestServe(t *testing.T) {
	dir, addr := t.TempDir(), linktest.Loopback().String()
	path := filepath.Join(dir, "a")
	p, _ := startUntil(t, "msg=ready", "serve", "--config", configFile(t, "[[device]]\nname = 'overridden'"),
		"--socket", filepath.Join(dir, "s"),
		"--admin", path, "--addr", addr, "--set", "device.name=blue", "--log-level", "debug")
	client := http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn,
		error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", path)
	}}}
	get := func(path string) []byte {
		t.Helper()
		r, err := client.Get("http://goroced" + path)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Body.Close()
		b, err := io.ReadAll(r.Body)
		if err != nil || r.StatusCode != 200 {
			t.Fatalf("%s: %d %s, %v; want 200", path, r.StatusCode, b, err)
		}
		return b
	}
	var s admin.Status
	if err := json.Unmarshal(get("/v1/status"), &s); err != nil {
		t.Fatal(err)
	}
	if s.PID != p.cmd.Process.Pid || len(s.Devices) != 1 || s.Devices[0].Name != "blue" ||
		s.Devices[0].State != "PORT_ACTIVE" ||
		len(s.Devices[0].Addresses) != 1 || s.Devices[0].Addresses[0].String() != addr {
		t.Errorf("status %+v, want process %d with blue, active, at %s", s, p.cmd.Process.Pid, addr)
	}
	if figures := string(get("/metrics")); !strings.Contains(figures, `goroce_sent_pkts_total{device="blue"} 0`) {
		t.Errorf("metrics, want %q:\n%s", `goroce_sent_pkts_total{device="blue"} 0`, figures)
	}
	links := regexp.MustCompile(`href="(.*?)"`).FindAllStringSubmatch(string(get("/")), -1)
	if len(links) < 10 {
		t.Errorf("the index has %d links, want at least 10", len(links))
	}
	for _, link := range links {
		if link[1] != "/v1/capture" { // which goes on until it is interrupted
			get(link[1])
		}
	}
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if code := p.wait(t); code != 0 || !strings.Contains(p.err.String(), "msg=stopped") {
		t.Errorf("exit code %d, want 0 and %q: %s", code, "msg=stopped", p.err.String())
	}
}

// TestServeErrors: what keeps the daemon from running is one line. A wrong value of a flag is a wrong command line.
func TestServeErrors(t *testing.T) {
	dir := t.TempDir()
	file := configFile(t, "\n[limits.user]\nqps = -1\n")
	at := func(args ...string) []string {
		return append([]string{"serve", "--socket", filepath.Join(dir, "s"), "--admin", filepath.Join(dir, "a")},
			args...)
	}
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{at("--config", file), exitFailure,
			file + ":3: limits.user.qps = -1: not allowed; allowed: a number, 0 to 16777216"},
		{at("--set", "drain"), exitUsage, "KEY=VALUE"},
		{at("--set", "nosuch=1"), exitUsage, "--set: nosuch: unknown key; allowed: socket"},
		{at("--link", "ib"), exitUsage, `--link: device.link = "ib": not allowed; allowed: auto, udp`},
		{at("--netif", "goroce_nosuch"), exitFailure, "goroce_nosuch"},
		{at("--addr", "192.0.2.77"), exitFailure, "192.0.2.77"},
		{at("--metrics", "0.0.0.0:1"), exitUsage, "loopback"},
		{[]string{"config", "check", file}, exitFailure, "goroced.toml is not good"},
		{[]string{"config", "check", dir + "/none"}, exitFailure, "no such file"},
		{[]string{"config", "show", "--config", file}, exitFailure, ":3: limits.user.qps"},
	} {
		p, code := goroced(t, c.args...)
		said := p.err.String()
		if code != c.code || !strings.HasPrefix(said, "goroced: ") || strings.Count(said, "\n") != 1 ||
			!strings.Contains(said, c.want) {
			t.Errorf("goroced %v: exit code %d, want %d and one line that says %q:\n%s", c.args, code, c.code, c.want,
				said)
		}
	}
}

func TestConfig(t *testing.T) {
	bad := configFile(t, "nosuch = 1\n\ndrain = 3\n")
	p, _ := goroced(t, "config", "check", bad)
	if want := bad + ":3: drain = 3: wrong type; allowed: a duration"; !strings.HasPrefix(p.out.String(),
		bad+":1: nosuch: unknown key") || !strings.Contains(p.out.String(), "\n"+want) ||
		strings.Count(p.out.String(), "\n") != 2 {
		t.Errorf("check says %s, want two errors, of nosuch and %s", p.out.String(), want)
	}
	good := configFile(t, "drain = '3s'")
	if out := success(t, "config", "check", good); out != good+" is good\n" {
		t.Errorf("check says %q, want %q", out, good+" is good\n")
	}
	flags := []string{"--config", good, "--socket", "/x/s", "--admin", "/x/a"}
	shown := success(t, append([]string{"config", "show"}, flags...)...)
	for _, want := range []string{`drain = "3s"`, "# " + good + ":1\n", "# --socket\n", "[limits.user]\n",
		"# default\n"} {
		if !strings.Contains(shown, want) {
			t.Errorf("show does not say %q:\n%s", want, shown)
		}
	}
	success(t, "config", "check", configFile(t, shown))
	var list []struct {
		Key, Origin string
		Value       any
	}
	if err := json.Unmarshal([]byte(success(t, append([]string{"config", "show", "--json"}, flags...)...)),
		&list); err != nil {
		t.Fatal(err)
	}
	if len(list) < 30 || list[0].Key != "socket" || list[0].Value != "/x/s" || list[0].Origin != "--socket" {
		t.Errorf("show --json: %+v, want 30 or more, socket = /x/s of --socket first", list)
	}
}

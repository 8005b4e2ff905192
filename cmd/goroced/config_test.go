package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/goroce/goroce/cmd/goroced/internal/config"
)

// TestConfigCheckMachine: config check names interfaces and addresses that the machine does not have, beside other
// mistakes.
func TestConfigCheckMachine(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "goroced.toml")
	const text = `drain = 10s
[[device]]
netif = "nosuch7"
[[device]]
addresses = ["203.0.113.77", "127.0.0.9"]
[[device]]
netif = "lo"
`
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	p, code := goroced(t, "config", "check", file)
	out := p.out.String()
	if code != exitFailure || strings.Count(out, "\n") != 3 {
		t.Errorf("exit code %d, want three lines:\n%s%s", code, out, p.err.String())
	}
	for _, want := range []string{":1: drain = 10s: lacks its quotes",
		":3: device[0].netif = \"nosuch7\": not on this machine; allowed: an interface with an address: ",
		":5: device[1].addresses = \"203.0.113.77\": not on this machine"} {
		if !strings.Contains(out, want) {
			t.Errorf("nothing says %q:\n%s", want, out)
		}
	}
}

// TestConfigInit: the file sets nothing, and `config check` takes it, as it is and with all its settings in force; then
// each has its default. A file that is there stays, unless --force says otherwise.
func TestConfigInit(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "etc", "goroced.toml")
	if out := success(t, "config", "init", file); out != "" {
		t.Errorf("it prints %s, want nothing", out)
	}
	text, err := os.ReadFile(file)
	if err != nil || string(text) != success(t, "config", "init") {
		t.Errorf("%v: the file is not what goes to standard output:\n%s", err, text)
	}
	inForce := filepath.Join(dir, "all.toml")
	if err := os.WriteFile(inForce, regexp.MustCompile(`(?m)^#(\w)`).ReplaceAll(text, []byte("$1")), 0o600); err != nil {
		t.Fatal(err)
	}
	origin := regexp.MustCompile(` +# .*`)
	defaults := origin.ReplaceAllString(success(t, "config", "show", "--config", configFile(t, "")), "")
	for _, f := range []string{file, inForce} {
		if out := success(t, "config", "check", f); out != f+" is good\n" {
			t.Errorf("config check: %s, want %q", out, f+" is good\n")
		}
		shown := success(t, "config", "show", "--config", f)
		if got := origin.ReplaceAllString(shown, ""); got != defaults {
			t.Errorf("%s: got\n%s\nwant the defaults\n%s", f, got, defaults)
		}
		if n := strings.Count(shown, "# default"); f == inForce && n > 0 {
			t.Errorf("%d settings are missing in the file, want none:\n%s", n, shown)
		}
	}
	before := []byte("drain = \"1s\"\n")
	if err := os.WriteFile(file, before, 0o600); err != nil {
		t.Fatal(err)
	}
	complains(t, "config init "+file, exitFailure, "--force replaces it")
	if after, err := os.ReadFile(file); err != nil || string(after) != string(before) {
		t.Errorf("%v: the file became\n%s\nwant\n%s", err, after, before)
	}
	success(t, "config", "init", "--force", file)
	if after, err := os.ReadFile(file); err != nil || string(after) != string(text) {
		t.Errorf("%v: --force wrote\n%s\nwant\n%s", err, after, text)
	}
}

// TestConfigCheckSays: config check without a file names the one that it has checked, or that there is none, and the
// variables that count.
func TestConfigCheckSays(t *testing.T) {
	home := t.TempDir()
	t.Setenv("XDG_CONFIG_HOME", home)
	t.Setenv("GOROCED_CONFIG", "")
	there := config.Process("", nil).DefaultFile() // root's is not in the home
	if _, err := os.Stat(there); err == nil {
		t.Skipf("skipped: needs an ordinary user, or a machine without %s", there)
	}
	want := "the default configuration (there is no " + there + ")"
	if got := success(t, "config", "check"); got != want+" is good\n" {
		t.Errorf("got %q, want %q", got, want)
	}
	t.Setenv("GOROCED_DRAIN", "3s")
	if got := success(t, "config", "check"); got != want+" with GOROCED_DRAIN is good\n" {
		t.Errorf("got %q, want %q with GOROCED_DRAIN", got, want)
	}
	file := configFile(t, "drain = \"2s\"")
	t.Setenv("GOROCED_CONFIG", file)
	if got := success(t, "config", "check"); got != file+" with GOROCED_DRAIN is good\n" {
		t.Errorf("got %q, want %s with GOROCED_DRAIN", got, file)
	}
	t.Setenv("GOROCED_DRAIN", "never")
	p, code := goroced(t, "config", "check")
	if code != exitFailure || !strings.Contains(p.err.String(), "is not good") {
		t.Errorf("exit code %d, want %d and %q: %s", code, exitFailure, "is not good", p.err.String())
	}
}

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
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

package config

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

// TestQuotes: permissions and durations without quotes are named as such, and hide no other mistake.
func TestQuotes(t *testing.T) {
	const text = `socket_mode = 0660
drain = 10s  # for clients
nosuch = 1

[log]
level = "loud"
[[device]]
netif = "eth0"
link = "tin"
`
	c, errs := Examine(Sources{File: write(t, text), UID: 1})
	var got []string
	for _, err := range errs {
		_, after, _ := strings.Cut(err.Error(), ".toml:")
		got = append(got, after)
	}
	slices.Sort(got)
	want := []string{
		`1: socket_mode = 0660: lacks its quotes: permissions and durations are strings; allowed: "0660"`,
		`2: drain = 10s: lacks its quotes: permissions and durations are strings; allowed: "10s"`,
		`3: nosuch: unknown key`, `6: log.level = "loud": not allowed`, `9: device[0].link = "tin": not allowed`,
	}
	if len(got) != len(want) {
		t.Fatalf("%d errors, want %d:\n%s", len(got), len(want), strings.Join(got, "\n"))
	}
	for i := range want {
		if !strings.HasPrefix(got[i], want[i]) {
			t.Errorf("%s\nwant %s", got[i], want[i])
		}
	}
	if len(c.Devices) != 1 || c.Devices[0].NetIf != "eth0" {
		t.Errorf("what is right is lost: %+v, want eth0", c.Devices)
	}
}

// TestQuotesAndSyntax: what is no TOML at all is still an error, beside them.
func TestQuotesAndSyntax(t *testing.T) {
	for text, want := range map[string]int{"drain = 10s\n[": 2, "drain = 1h": 1, "drain = ten": 1,
		"drain = 10s = 5": 1, "idle_exit = 1.5s\r\ndrain = 10s\r\n": 2} {
		_, errs := Examine(Sources{File: write(t, text), UID: 1})
		if len(errs) != want {
			t.Errorf("%q: %d errors, want %d: %v", text, len(errs), want, errors.Join(errs...))
		}
		if _, err := Load(Sources{File: write(t, text), UID: 1}); err == nil {
			t.Errorf("%q is loaded, want an error", text)
		}
	}
}

package config

import (
	"slices"
	"strings"
	"testing"
)

// TestReference: each setting has a meaning and a default, each table says what it is for, and no note is of a setting
// that is not there.
func TestReference(t *testing.T) {
	used := map[string]bool{}
	var tables []string
	for _, k := range Reference(Sources{}) {
		if k.About == "" || k.Standard == "" || k.Allowed == "" || k.Type == "" {
			t.Errorf("%s: nothing says what it means, or which values it has: %+v", k.Name, k)
		}
		for name := range about {
			if name == k.Name || strings.HasSuffix(k.Name, "."+name) {
				used[name] = true
			}
		}
		if at := strings.LastIndexByte(k.Name, '.'); at > 0 && !slices.Contains(tables, k.Name[:at]) {
			tables = append(tables, k.Name[:at])
		}
	}
	for name := range about {
		if !used[name] {
			t.Errorf("about has %s, which is no setting", name)
		}
	}
	for _, table := range tables {
		if Tables[table] == "" {
			t.Errorf("nothing says what table %s is for", table)
		}
	}
	if len(Tables) != len(tables) {
		t.Errorf("got notes on %d tables, want %v", len(Tables), tables)
	}
}

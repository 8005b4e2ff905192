package main

import (
	"path/filepath"
	"strings"
	"testing"
)

// TestRefuses: what cannot be released is refused before anything is built.
func TestRefuses(t *testing.T) {
	for _, c := range []struct{ version, revision, out, want string }{
		{"0.1.0", "HEAD", "/nowhere/out", "like v0.1.0"},
		{"v2.0.0", "HEAD", "/nowhere/out", "like v0.1.0"},
		{"v0.1", "HEAD", "/nowhere/out", "like v0.1.0"},
		{"v0.1.0", "nosuch", "/nowhere/out", "nosuch"},
		{"v0.1.0", "HEAD", "out", "absolute path"},
		{"v0.1.0", "HEAD", "/tmp", "is there already"},
	} {
		if strings.HasPrefix(c.out, "/nowhere") {
			c.out = filepath.Join(t.TempDir(), "out")
		}
		if err := run(t.Context(), c.version, c.revision, c.out); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want %q", c, err, c.want)
		}
	}
}

package main

import (
	"path/filepath"
	"strings"
	"testing"
)

// TestRunAbsent: a program that is not there, or is none, is refused as by a shell, before the libraries and a daemon
// are looked for: neither is there, which would be another error.
func TestRunAbsent(t *testing.T) {
	t.Setenv("GOROCED_SOCKET", filepath.Join(t.TempDir(), "nobody"))
	t.Setenv("GOROCE_LIB", t.TempDir())
	for _, c := range []struct {
		program string
		code    int
		want    string
	}{
		{"nosuch-program", 127, `"nosuch-program": executable file not found`},
		{"/nosuch/program", 127, "/nosuch/program"},
		{"/etc/passwd", 126, "permission denied"},
	} {
		p, code := goroced(t, "run", "--", c.program)
		if code != c.code || !strings.Contains(p.err.String(), c.want) {
			t.Errorf("%s: exit code %d, want %d and %q: %s", c.program, code, c.code, c.want, p.err.String())
		}
	}
}

package lab

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/goroce/goroce/tests/require"
)

// TestArchive has the cpio program unpack what archive writes.
func TestArchive(t *testing.T) {
	cpio := require.Command(t, "cpio")
	files := map[string]string{
		"init":            "#!/bin/sh\n",
		"usr/bin/a":       "x",
		"usr/bin/b":       "",
		"usr/lib/libc.so": "four",
	}
	var a archive
	for _, name := range []string{"init", "usr/bin/a", "usr/bin/b", "usr/lib/libc.so"} {
		a.addFile("/"+name, 0o755, []byte(files[name]))
	}
	dir := t.TempDir()
	cmd := exec.Command(cpio, "-i", "--quiet", "--no-preserve-owner")
	cmd.Dir, cmd.Stdin = dir, bytes.NewReader(a.finish())
	if output, err := cmd.CombinedOutput(); err != nil || len(output) > 0 {
		t.Fatalf("cpio: %v, want no output: %s", err, output)
	}
	for name, want := range files {
		path := filepath.Join(dir, name)
		got, err := os.ReadFile(path)
		if err != nil || string(got) != want {
			t.Errorf("%s holds %q, %v; want %q", name, got, err, want)
		}
		if info, err := os.Stat(path); err == nil && info.Mode().Perm() != 0o755 {
			t.Errorf("%s has mode %v, want 0755", name, info.Mode())
		}
	}
}

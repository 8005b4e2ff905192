package launch

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// TestSweep: files of processes that are gone go, those of others stay.
func TestSweep(t *testing.T) {
	p := place(t.TempDir())
	const never = 1 << 30 // no process has so high a number
	for _, name := range []string{strconv.Itoa(os.Getpid()), strconv.Itoa(never), "x"} {
		if err := os.WriteFile(filepath.Join(string(p), unused+name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	p.sweep()
	left, err := filepath.Glob(filepath.Join(string(p), "*"))
	if err != nil || len(left) != 2 || slices.Contains(left, filepath.Join(string(p), unused+strconv.Itoa(never))) {
		t.Errorf("left: %v, %v; want the file of this process, and that of no process", left, err)
	}
}

// TestMark: a run within a run takes the place of the outer one, and removes nothing but its file.
func TestMark(t *testing.T) {
	dir := t.TempDir()
	other := filepath.Join(dir, "other")
	outer := filepath.Join(dir, unused+"1")
	for _, path := range []string{other, outer} {
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		t.Setenv(runVariable, path)
		marked, undo := mark([]string{"A=1", runVariable + "=" + path})
		undo()
		if n := strings.Count(strings.Join(marked, "\n"), runVariable+"="); n > 1 || slices.Contains(marked,
			runVariable+"="+path) || !slices.Contains(marked, "A=1") {
			t.Errorf("got %q, want A, and one other file at most", marked)
		}
	}
	if left, err := filepath.Glob(filepath.Join(dir, "*")); err != nil || len(left) != 1 || left[0] != other {
		t.Errorf("left: %v, %v; want %s", left, err, other)
	}
}

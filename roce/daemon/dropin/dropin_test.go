//go:build linux

package dropin

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// fakeCompiler writes $CC, a program that notes each call and makes the file behind -o, or fails.
func fakeCompiler(t *testing.T, fails bool) (calls func() int) {
	t.Helper()
	dir := t.TempDir()
	script := `#!/bin/sh
[ "$1" = --version ] && echo fake 1.0 && exit
echo >>` + filepath.Join(dir, "calls") + `
while [ "$1" != -o ]; do shift; done
echo built >"$2"
`
	if fails {
		script += "echo x.c:1: no such thing >&2; exit 1\n"
	}
	path := filepath.Join(dir, "cc")
	if err := os.WriteFile(path, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("CC", path)
	return func() int {
		text, _ := os.ReadFile(filepath.Join(dir, "calls"))
		return strings.Count(string(text), "\n")
	}
}

// only returns the names in a directory.
func only(t *testing.T, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// TestBuild: concurrent builds compile once and return one directory, in which nothing else is left.
func TestBuild(t *testing.T) {
	calls := fakeCompiler(t, false)
	dir := filepath.Join(t.TempDir(), "cache")
	var found [8]string
	var all sync.WaitGroup
	for i := range found {
		all.Go(func() {
			var err error
			if found[i], err = Build(t.Context(), dir); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	names := only(t, dir)
	if len(names) != 1 {
		t.Fatalf("in the directory are %v, want one", names)
	}
	for _, f := range found {
		if f != filepath.Join(dir, names[0]) || !complete(f) {
			t.Errorf("built in %s, want a complete %s", f, filepath.Join(dir, names[0]))
		}
	}
	files, _ := fs.Glob(sources, "*/*.c")
	before := calls()
	if want := len(files) + len(libraries); before != want {
		t.Errorf("%d calls of the compiler, want %d: each source, and each library", before, want)
	}
	if again, err := Build(t.Context(), dir); again != found[0] || err != nil || calls() != before {
		t.Errorf("again: %s, %v, %d calls of the compiler; want %s, %d", again, err, calls(), found[0], before)
	}
	fakeCompiler(t, false)
	if other, err := Build(t.Context(), dir); other == found[0] || err != nil {
		t.Errorf("with another compiler: %s, %v; want another than %s", other, err, found[0])
	}
}

// TestBuildUmask: under a umask that denies nothing, nobody else may write to the libraries.
func TestBuildUmask(t *testing.T) {
	fakeCompiler(t, false)
	dir := filepath.Join(t.TempDir(), "cache")
	defer syscall.Umask(syscall.Umask(0))
	built, err := Build(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{dir, built, filepath.Join(built, Verbs), filepath.Join(built, Sys)} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o755 {
			t.Errorf("%s: got mode %v, %v, want 0755", path, info.Mode().Perm(), err)
		}
	}
}

// TestBuildFails: the compiler's words are in the error, and nothing is left.
func TestBuildFails(t *testing.T) {
	fakeCompiler(t, true)
	dir := t.TempDir()
	if _, err := Build(t.Context(), dir); err == nil || !strings.Contains(err.Error(), "x.c:1: no such thing") {
		t.Error(err)
	}
	if names := only(t, dir); len(names) > 0 {
		t.Errorf("%v are left, want none", names)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Build(ctx, dir); err == nil {
		t.Error("built although nobody waits for it")
	}
}

// TestNoCompiler: the error names packages.
func TestNoCompiler(t *testing.T) {
	t.Setenv("CC", "")
	t.Setenv("PATH", t.TempDir())
	_, err := Build(t.Context(), t.TempDir())
	if !errors.Is(err, ErrNoCompiler) || !strings.Contains(err.Error(), "install gcc and libc6-dev") {
		t.Error(err)
	}
}

// TestFind: $GOROCE_LIB stands alone; in the cache it is what this user has built from these sources.
func TestFind(t *testing.T) {
	fakeCompiler(t, false)
	cache := t.TempDir()
	t.Setenv("XDG_CACHE_HOME", cache)
	t.Setenv(Variable, "")
	if dir, err := Find(t.Context()); !errors.Is(err, ErrNotFound) {
		t.Fatalf("in an empty cache: %s, %v; want %v", dir, err, ErrNotFound)
	}
	built, err := Libraries(t.Context())
	if err != nil || filepath.Dir(built) != filepath.Join(cache, "goroce") {
		t.Fatalf("%s, %v; want a directory in %s", built, err, filepath.Join(cache, "goroce"))
	}
	if dir, err := Find(t.Context()); dir != built || err != nil {
		t.Errorf("%s, %v, want %s", dir, err, built)
	}

	t.Setenv("CC", "no-compiler") // any compiler's will do
	if dir, err := Libraries(t.Context()); dir != built || err != nil {
		t.Errorf("without a compiler: %s, %v, want %s", dir, err, built)
	}
	for _, path := range []string{built, filepath.Dir(built), filepath.Join(built, Verbs), filepath.Join(built, Sys)} {
		if err := os.Chmod(path, 0o777); err != nil {
			t.Fatal(err)
		}
		if dir, err := Find(t.Context()); !errors.Is(err, ErrNotFound) {
			t.Errorf("anybody may write to %s: got %s, %v, want %v", path, dir, err, ErrNotFound)
		}
		if err := os.Chmod(path, 0o755); err != nil {
			t.Fatal(err)
		}
	}

	t.Setenv(Variable, built) // the mode of a directory that the user names is not checked
	if dir, err := Find(t.Context()); dir != built || err != nil {
		t.Errorf("%s names it: %s, %v; want %s", Variable, dir, err, built)
	}
	t.Setenv(Variable, cache)
	if _, err := Libraries(t.Context()); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), cache) {
		t.Errorf("%s names a directory without libraries: %v, want %v and %q", Variable, err, fs.ErrNotExist, cache)
	}
}

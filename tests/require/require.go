// Package require guards tests that need more than the Go toolchain: root, a
// program, a kernel feature.
//
// Where the thing is absent the test skips and says what is missing. With
// GOROCE_REQUIRE=1 in the environment the same absence fails the test: a suite
// that silently tests nothing cannot pass there. .ci/run runs all tests as an
// ordinary user first. Then it runs those that have skipped something again as
// root, with this variable: GOROCE_SKIPPED names the file that lists them.
package require

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// enforced reports whether missing things fail tests instead of skipping them.
func enforced() bool { return os.Getenv("GOROCE_REQUIRE") == "1" }

// Full reports whether tests shall repeat what is alike: with GOROCE_FULL=1 in the
// environment, which .ci/nightly sets, they play all rounds and all combinations, else the
// fewest that show something each.
func Full() bool { return os.Getenv("GOROCE_FULL") == "1" }

// Rounds returns full where that is asked for, else few.
func Rounds(few, full int) int {
	if Full() {
		return full
	}
	return few
}

// Patience is how long Until waits.
const Patience = time.Minute

// Until waits until holds returns true, and returns how long that took. It looks each millisecond, of virtual time in a
// simulation. If it takes longer than Patience, the test ends.
func Until(t testing.TB, what string, holds func() bool) time.Duration {
	t.Helper()
	start := time.Now()
	for ; !holds(); time.Sleep(time.Millisecond) {
		if time.Since(start) > Patience {
			t.Fatalf("not within %v: %s", Patience, what)
		}
	}
	return time.Since(start)
}

// Parallel lets n tests run at a time, unless -parallel says otherwise. Packages whose tests mostly wait call it in
// TestMain.
func Parallel(n int) {
	flag.Parse()
	asked := false
	flag.Visit(func(f *flag.Flag) { asked = asked || f.Name == "test.parallel" })
	if !asked {
		_ = flag.Set("test.parallel", strconv.Itoa(n))
	}
}

// NoRace skips a test, for a reason, in a binary with the race detector. .ci/run runs all tests without it too.
func NoRace(t testing.TB, reason string) {
	t.Helper()
	info, ok := debug.ReadBuildInfo()
	if ok && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"}) {
		t.Skip("skipped: needs a test binary without -race: " + reason)
	}
}

// FullRun skips a test that a plain run leaves out, for a reason: "it takes seconds".
func FullRun(t testing.TB, reason string) {
	t.Helper()
	if !Full() {
		t.Skip("skipped: needs GOROCE_FULL=1: " + reason)
	}
}

// Missing ends the test: a skip that names what is missing, or a failure where
// the environment promises that nothing is.
func Missing(t testing.TB, format string, args ...any) {
	t.Helper()
	if enforced() {
		t.Fatalf("GOROCE_REQUIRE=1, but "+format, args...)
	}
	skip(t, fmt.Sprintf(format, args...))
}

// skip ends the test, and records it in the file that GOROCE_SKIPPED names.
func skip(t testing.TB, reason string) {
	t.Helper()
	if path := os.Getenv("GOROCE_SKIPPED"); path != "" {
		if err := record(t, path); err != nil {
			t.Fatalf("record the skip: %v", err)
		}
	}
	t.Skip("skipped: " + reason)
}

// record adds a line to the file: the package's import path, a space, the name of the top-level test.
func record(t testing.TB, path string) error {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return errors.New("the test binary has no build information")
	}
	name, _, _ := strings.Cut(t.Name(), "/")
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(file, strings.TrimSuffix(info.Path, ".test"), name)
	return errors.Join(err, file.Close())
}

// Root ends the test unless it runs as root.
func Root(t testing.TB) {
	t.Helper()
	if os.Geteuid() == 0 {
		return
	}
	// As an ordinary user root cannot be had, whatever the environment promises.
	skip(t, "needs root (network namespaces, raw sockets)")
}

// Command ends the test unless the program is on the PATH, and returns its path.
func Command(t testing.TB, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		Missing(t, "program %s is not on the PATH", name)
	}
	return path
}

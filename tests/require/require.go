// Package require guards tests that need more than the Go toolchain: root, a
// program, a kernel feature.
//
// Where the thing is absent the test skips and says what is missing. With
// GOROCE_REQUIRE=1 in the environment, which .ci/run sets for its run as root,
// the same absence fails the test: a suite that silently tests nothing cannot
// pass there.
package require

import (
	"os"
	"os/exec"
	"testing"
)

// enforced reports whether missing things fail tests instead of skipping them.
func enforced() bool { return os.Getenv("GOROCE_REQUIRE") == "1" }

// Missing ends the test: a skip that names what is missing, or a failure where
// the environment promises that nothing is.
func Missing(t testing.TB, format string, args ...any) {
	t.Helper()
	if enforced() {
		t.Fatalf("GOROCE_REQUIRE=1, but "+format, args...)
	}
	t.Skipf("skipped: "+format, args...)
}

// Root ends the test unless it runs as root.
func Root(t testing.TB) {
	t.Helper()
	if os.Geteuid() == 0 {
		return
	}
	// As an ordinary user root cannot be had, whatever the environment promises.
	t.Skip("skipped: needs root (network namespaces, raw sockets)")
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

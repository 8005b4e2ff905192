//go:build linux

package install

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/goroce/goroce/tests/require"
)

// newer makes a package of the next version of one for Debian.
func newer(t *testing.T, deb string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "package")
	output(t, "dpkg-deb", "--raw-extract", deb, dir)
	control := filepath.Join(dir, "DEBIAN/control")
	text, err := os.ReadFile(control)
	if err != nil {
		t.Fatal(err)
	}
	changed := strings.Replace(string(text), "\nVersion: 0.9.1-1\n", "\nVersion: 0.9.2-1\n", 1)
	if err := os.WriteFile(control, []byte(changed), 0o644); err != nil || changed == string(text) {
		t.Fatalf("%v\n%s", err, text)
	}
	next := filepath.Join(filepath.Dir(dir), strings.Replace(filepath.Base(deb), "0.9.1", "0.9.2", 1))
	output(t, "dpkg-deb", "--root-owner-group", "-Zgzip", "-z1", "--build", dir, next)
	return next
}

// TestDebian: the package is installed on a clean root of Debian and of Ubuntu, used, upgraded, removed and purged.
func TestDebian(t *testing.T) {
	deb := filepath.Join(released(t), "goroced_"+version+"-1_amd64.deb")
	next := newer(t, deb)
	for _, suite := range []string{"bookworm", "noble"} {
		t.Run(suite, func(t *testing.T) {
			t.Parallel()
			boot(t, cleanRoot(t, suite), "debian.sh", deb, next)
		})
	}
}

// TestRPM: the same by rpm, on a root of Debian.
func TestRPM(t *testing.T) {
	t.Parallel()
	boot(t, cleanRoot(t, "bookworm"), "rpm.sh", filepath.Join(released(t), "goroced-"+version+"-1.x86_64.rpm"))
}

// TestArchiveInstalled: the archive's program runs where it was unpacked, and the archive in /usr is an installation.
func TestArchiveInstalled(t *testing.T) {
	t.Parallel()
	boot(t, cleanRoot(t, "bookworm"), "archive.sh",
		filepath.Join(released(t), "goroced_"+version+"_linux_amd64.tar.gz"))
}

// TestLintian: Debian's checker finds no error and nothing to warn of.
func TestLintian(t *testing.T) {
	t.Parallel()
	dir := released(t)
	lintian := require.Command(t, "lintian")
	for _, arch := range []string{"amd64", "arm64"} {
		out := output(t, lintian, "--allow-root", "--fail-on", "error,warning",
			filepath.Join(dir, "goroced_"+version+"-1_"+arch+".deb"))
		if strings.TrimSpace(out) != "" {
			t.Errorf("%s: %s, want nothing", arch, out)
		}
	}
}

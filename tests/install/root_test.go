//go:build linux

package install

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/goroce/goroce/tests/require"
)

// cleanRoot returns a root of Debian or Ubuntu that root.sh has made, in which a test may change everything.
func cleanRoot(t *testing.T, suite string) string {
	t.Helper()
	require.Root(t)
	cache := os.Getenv("GOROCE_LAB_CACHE")
	if cache == "" {
		cache = "/var/cache/goroce-lab"
	}
	lower := filepath.Join(cache, "install", suite)
	if why, err := os.ReadFile(lower + ".missing"); err == nil {
		t.Skipf("skipped: needs a mirror of Ubuntu with %s: %s", suite, why)
	}
	if _, err := os.Stat(filepath.Join(lower, "etc/debian_version")); err != nil {
		require.Missing(t, "%s, which .ci/packages makes, is not there", lower)
	}
	dir := t.TempDir()
	for _, name := range []string{"changes", "work", "root"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	root := filepath.Join(dir, "root")
	options := "lowerdir=" + lower + ",upperdir=" + filepath.Join(dir, "changes") + ",workdir=" +
		filepath.Join(dir, "work")
	if err := unix.Mount("overlay", root, "overlay", 0, options); err != nil {
		require.Missing(t, "overlayfs cannot be mounted: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(root, 0); err != nil {
			t.Errorf("unmount: %v", err)
		}
	})
	return root
}

// unit runs the script of a test as the root boots, and ends the root with the script's status.
const unit = `[Unit]
After=basic.target dbus.socket
SuccessAction=exit
FailureAction=exit

[Service]
Type=oneshot
ExecStart=/bin/bash /try/script
StandardOutput=file:/try/log
StandardError=inherit
`

// boot starts systemd in a root, with a script of testdata and packages in /try. The script must come to its end.
func boot(t *testing.T, root, script string, packages ...string) {
	t.Helper()
	nspawn := require.Command(t, "systemd-nspawn")
	place := func(name string, data []byte, err error) {
		t.Helper()
		if err == nil {
			err = os.MkdirAll(filepath.Join(root, filepath.Dir(name)), 0o755)
		}
		if err == nil {
			err = os.WriteFile(filepath.Join(root, name), data, 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, p := range packages {
		data, err := os.ReadFile(p)
		place("try/"+filepath.Base(p), data, err)
	}
	network, err1 := os.ReadFile("testdata/network.sh")
	commands, err2 := os.ReadFile(filepath.Join("testdata", script))
	writeBlocks(t, filepath.Join(root, "try"))
	place("try/script", append(network, commands...), errors.Join(err1, err2))
	place("etc/systemd/system/try.service", []byte(unit), nil)
	wants := filepath.Join(root, "etc/systemd/system/multi-user.target.wants/try.service")
	if err := os.Symlink("../try.service", wants); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, nspawn, "--quiet", "--register=no", "--keep-unit", "--private-network", "--boot",
		"--directory", root)
	cmd.Cancel = func() error { return cmd.Process.Signal(unix.SIGTERM) } // which ends the root, too
	cmd.WaitDelay = 20 * time.Second
	out, err := cmd.CombinedOutput()
	log, _ := os.ReadFile(filepath.Join(root, "try/log"))
	if err != nil || !strings.HasSuffix(string(log), "+ : all is well\n") {
		t.Errorf("%v, want that all is well\n%s\n%s", err, log, out)
	}
	if testing.Verbose() {
		t.Logf("%s", log)
	}
}

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/goroce/goroce/tests/require"
)

// exposure is the most that `systemd-analyze security` may find, in tenths: network,
// Unix and netlink sockets of the host cost so much, and the daemon lives by them.
const exposure = "15"

// TestUnits: systemd accepts the units as they are and with each drop-in, and finds
// little that they leave open.
func TestUnits(t *testing.T) {
	analyze := require.Command(t, "systemd-analyze")
	const source = "../../dist/systemd"
	dropIns, err := filepath.Glob(filepath.Join(source, "goroced.service.d", "*.example"))
	if err != nil || len(dropIns) != 3 {
		t.Fatalf("drop-ins %v, %v; want 3", dropIns, err)
	}
	for _, dropIn := range append([]string{""}, dropIns...) {
		t.Run(filepath.Base(dropIn), func(t *testing.T) {
			dir := t.TempDir()
			copyFile(t, filepath.Join(source, "goroced.socket"), filepath.Join(dir, "goroced.socket"))
			service := filepath.Join(dir, "goroced.service")
			copyFile(t, filepath.Join(source, "goroced.service"), service)
			if dropIn != "" {
				copyFile(t, dropIn, service+".d/"+strings.TrimSuffix(filepath.Base(dropIn), ".example"))
			}
			runQuiet(t, analyze, "verify", "--recursive-errors=no", service, filepath.Join(dir, "goroced.socket"))
			if dropIn == "" {
				runQuiet(t, analyze, "security", "--offline=true", "--threshold="+exposure, service)
			}
		})
	}
}

// TestTemplates: the units of daemons by name are the daemon's, but for the name and what depends on it.
func TestTemplates(t *testing.T) {
	renamed := strings.NewReplacer(
		"Requires=goroced.socket", "Requires=goroced@%i.socket", "Also=goroced.socket", "Also=goroced@%i.socket",
		"goroced serve", "goroced serve --config /etc/goroce/%i.toml", "Environment=XDG_CONFIG_HOME=/etc\n", "",
		"goroce/goroced", "goroce/%i", "in user space\n", "in user space (%i)\n")
	settings := func(name string, change func(string) string) []string {
		b, err := os.ReadFile("../../dist/systemd/" + name)
		if err != nil {
			t.Fatal(err)
		}
		return slices.DeleteFunc(strings.Split(change(string(b)), "\n"), func(line string) bool {
			return strings.HasPrefix(line, "#") || strings.HasPrefix(line, "AssertPathExists=")
		})
	}
	for _, kind := range []string{"service", "socket"} {
		want, got := settings("goroced."+kind, renamed.Replace), settings("goroced@."+kind, strings.Clone)
		if !slices.Equal(got, want) {
			t.Errorf("goroced@.%s differs from goroced.%[1]s: %q, want %q", kind, got, want)
		}
	}
	analyze := require.Command(t, "systemd-analyze")
	dir := t.TempDir()
	for _, kind := range []string{"service", "socket"} {
		copyFile(t, "../../dist/systemd/goroced@."+kind, filepath.Join(dir, "goroced@."+kind))
	}
	runQuiet(t, analyze, "verify", "--recursive-errors=no", filepath.Join(dir, "goroced@blue.service"),
		filepath.Join(dir, "goroced@blue.socket"))
}

// TestUnitLimits: a daemon that fails comes back however often, and can take neither the
// machine's threads nor its memory. It may have as many threads as Go's runtime (10,000).
func TestUnitLimits(t *testing.T) {
	unit, err := os.ReadFile("../../dist/systemd/goroced.service")
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{"StartLimitIntervalSec=0", "Restart=on-failure", "RestartSec=1s", "TasksMax=11000",
		"MemoryMax=50%"} {
		if !strings.Contains(string(unit), "\n"+line+"\n") {
			t.Errorf("the unit does not say %s", line)
		}
	}
}

// copyFile copies a unit. What it starts becomes the program that is tested.
func copyFile(t *testing.T, from, to string) {
	t.Helper()
	b, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(to, []byte(strings.ReplaceAll(string(b), "/usr/bin/goroced", program)), 0o644); err != nil {
		t.Fatal(err)
	}
}

// runQuiet runs a program that must succeed without a word of complaint.
func runQuiet(t *testing.T, program string, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program, args...)
	var complaints strings.Builder
	cmd.Stderr = &complaints
	if out, err := cmd.Output(); err != nil || complaints.Len() > 0 {
		t.Errorf("%s: %v, want no complaints\n%s%s", strings.Join(cmd.Args, " "), err, out, complaints.String())
	}
}

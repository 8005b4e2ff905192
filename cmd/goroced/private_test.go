package main

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/goroce/goroce/roce/daemon/dropin"
	"github.com/goroce/goroce/tests/linktest"
	"github.com/goroce/goroce/tests/require"
)

// TestServeWithoutRuntimeDirectory: an ordinary user without XDG_RUNTIME_DIR, as in a cron job or behind su, runs a
// daemon, and the tools find it. Its folder is the user's alone; one that somebody else has made is refused.
func TestServeWithoutRuntimeDirectory(t *testing.T) {
	t.Parallel()
	require.Root(t)
	uid, place := someUser(t)
	dir, err := os.MkdirTemp("", "goroced-private") // an ordinary user may not enter that of the test
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = os.RemoveAll(dir), os.RemoveAll(place) })
	own := filepath.Join(dir, "goroced")
	copyProgram(t, own)
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	as := func(args ...string) *exec.Cmd {
		cmd := exec.CommandContext(ctx, own, args...)
		cmd.Env, cmd.Dir = []string{"HOME=/nonexistent", "PATH=" + os.Getenv("PATH")}, "/"
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}}
		return cmd
	}
	serve := []string{"serve", "--addr", linktest.Loopback().String()}

	if out, err := as(serve...).CombinedOutput(); err == nil || !strings.Contains(string(out), "is another user's") {
		t.Errorf("in a folder of another user: %v, want that it is another user's\n%s", err, out)
	}
	if err := os.Remove(place); err != nil {
		t.Fatal(err)
	}

	daemon := &process{cmd: as(serve...)}
	w := &watcher{re: regexp.MustCompile("ready"), found: make(chan []string, 1)}
	daemon.cmd.Stderr = io.MultiWriter(&daemon.err, w)
	if err := daemon.begin(); err != nil {
		t.Fatal(err)
	}
	w.until(t, daemon)
	if info, err := os.Stat(place); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("its folder: %v, %v; want mode 0700", info, err)
	}
	for _, args := range []string{"devices", "devinfo --daemon", "status"} {
		if out, err := as(strings.Fields(args)...).CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", args, err, out)
		}
	}
	inC(t, as, dir)
	_ = daemon.cmd.Process.Signal(syscall.SIGTERM)
	daemon.done(t, "serve")
}

// someUser returns the ID of a user that the machine does not have, and the folder of that user's daemon, made by root.
func someUser(t *testing.T) (uid int, place string) {
	t.Helper()
	var err error
	for range 100 {
		uid = 40000 + rand.IntN(20000)
		place = fmt.Sprintf("/tmp/goroce-%d", uid)
		if err = os.Mkdir(place, 0o700); err == nil {
			return uid, place
		}
	}
	t.Fatal(err)
	return 0, ""
}

// inC: programs in C find the daemon, too, without `goroced run`, by the library and by the preload.
func inC(t *testing.T, as func(...string) *exec.Cmd, dir string) {
	libs, err := dropin.Build(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ variable, program string }{
		{"LD_LIBRARY_PATH=" + libs, require.Command(t, "ibv_devices")},
		{"LD_PRELOAD=" + filepath.Join(libs, dropin.Sys), require.Command(t, "ls") + " /sys/class/infiniband"},
	} {
		words := strings.Fields(c.program)
		cmd := as(words[1:]...)
		cmd.Path, cmd.Env = words[0], append(cmd.Env, c.variable)
		if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "goroce_lo") {
			t.Errorf("%s %s: %v, want goroce_lo\n%s", c.variable, c.program, err, out)
		}
	}
}

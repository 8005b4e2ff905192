package main

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/goroce/goroce/tests/linktest"
	"github.com/goroce/goroce/tests/require"
)

// TestUpgrade: the service manager holds the sockets, so a daemon can be replaced without refusing a client. One that
// comes while the old daemon drains waits, and is served by the new one. A client that stays is told that its device is
// gone.
func TestUpgrade(t *testing.T) {
	sh := require.Command(t, "sh")
	dir, addr := t.TempDir(), linktest.Loopback().String()
	socket, admin := filepath.Join(dir, "s"), filepath.Join(dir, "a")
	passed := []*os.File{held(t, "unixpacket", socket), held(t, "unix", admin)}
	daemon := func() *process {
		t.Helper()
		// The shell fills in its process ID, which stays the daemon's: sd_listen_fds(3).
		p, _ := passUntil(t, "msg=ready", passed, sh, "-c", `LISTEN_FDS=2 LISTEN_PID=$$ exec "$0" "$@"`, program,
			"serve", "--addr", addr, "--set", "device.name=blue", "--drain", "1m")
		return p
	}
	devices := func() *process { return start(t, "devinfo", "-l", "--socket", socket) }

	old := daemon()
	stays, _ := serve(t, "rping", "-s", "--socket", socket, "-a", addr)
	if err := old.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	awaitReleased(t, old.cmd.Process.Pid, passed[0])
	late := devices()
	if err := old.cmd.Process.Signal(syscall.SIGTERM); err != nil { // do not wait for the client that stays
		t.Fatal(err)
	}
	if code := old.wait(t); code != 0 {
		t.Fatalf("the old daemon ends with %d, want 0: %s", code, old.err.String())
	}
	if code := stays.wait(t); code != exitFailure || !strings.Contains(stays.err.String(), "daemon") {
		t.Errorf("the client that stayed ends with %d and says %q; want %d and %q", code, stays.err.String(),
			exitFailure, "daemon")
	}
	daemon()
	if code := late.wait(t); code != 0 || !strings.Contains(late.out.String(), "blue") {
		t.Errorf("the client that came between ends with %d, want 0 and %q: %s%s", code, "blue", late.out.String(),
			late.err.String())
	}
}

// awaitReleased waits until a process has closed its descriptors of a socket.
func awaitReleased(t *testing.T, pid int, socket *os.File) {
	t.Helper()
	name, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", socket.Fd())) // socket:[INODE]
	if err != nil {
		t.Fatal(err)
	}
	require.Until(t, fmt.Sprintf("process %d, which drains, closes %s", pid, name), func() bool {
		links, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
		if err != nil || len(links) == 0 {
			t.Fatalf("process %d has no descriptors (%v)", pid, err)
		}
		return !slices.ContainsFunc(links, func(link string) bool { to, _ := os.Readlink(link); return to == name })
	})
}

// held returns the descriptor of a listening socket, as a service manager has it.
func held(t *testing.T, network, path string) *os.File {
	t.Helper()
	l, err := net.ListenUnix(network, &net.UnixAddr{Name: path, Net: network})
	if err != nil {
		t.Fatal(err)
	}
	f, err := l.File()
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	_ = l.Close()
	t.Cleanup(func() { _ = f.Close() })
	return f
}

// TestTwoDaemons: daemons with sockets of their own run side by side, and each is found by its name.
func TestTwoDaemons(t *testing.T) {
	dir := t.TempDir()
	names := []string{"blue", "red"}
	for _, name := range names {
		startUntil(t, "msg=ready", "serve", "--socket", filepath.Join(dir, name+".sock"),
			"--admin", filepath.Join(dir, name+"-admin.sock"), "--addr", linktest.Loopback().String(),
			"--set", "device.name="+name)
	}
	for i, name := range names {
		out := success(t, "devinfo", "-l", "--socket", filepath.Join(dir, name+".sock"))
		out += success(t, "status", "--admin", filepath.Join(dir, name+"-admin.sock"))
		if !strings.Contains(out, name) || strings.Contains(out, names[1-i]) {
			t.Errorf("daemon %s shows %s, want only that", name, out)
		}
	}
}

// TestStop: a daemon is ended, or replaced, by the socket at which it is looked at.
func TestStop(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	serves := func(flags ...string) *process {
		args := []string{"serve", "--config", configFile(t, ""), "--socket", filepath.Join(dir, "s"), "--admin",
			filepath.Join(dir, "a"), "--addr", linktest.Loopback().String()}
		p, _ := startUntil(t, "msg=ready", append(args, flags...)...)
		return p
	}
	first := serves()
	p, code := goroced(t, "serve", "--config", configFile(t, ""), "--socket", filepath.Join(dir, "s"), "--admin",
		filepath.Join(dir, "a"))
	if code != exitFailure || !strings.Contains(p.err.String(), "goroced stop") {
		t.Errorf("a second daemon: exit code %d, want %d and %q: %s", code, exitFailure, "goroced stop", p.err.String())
	}
	second := serves("--replace")
	first.done(t, "the first daemon")
	out := success(t, "stop", "--admin", filepath.Join(dir, "a"))
	if want := fmt.Sprintf("process %d\n", second.cmd.Process.Pid); !strings.HasSuffix(out, want) {
		t.Errorf("got %q, want %q", out, want)
	}
	second.done(t, "the second daemon")
	third := serves("--replace") // there is none to replace
	success(t, "stop", "--admin", filepath.Join(dir, "a"))
	third.done(t, "the third daemon")
	if p, code := goroced(t, "stop", "--admin", filepath.Join(dir, "a")); code != exitFailure ||
		!strings.Contains(p.err.String(), "no daemon runs here") {
		t.Errorf("stop without a daemon: exit code %d, want %d and %q: %s", code, exitFailure, "no daemon runs here",
			p.err.String())
	}
}

//go:build linux

package dropin

import (
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/goroce/goroce/tests/linktest"
	"github.com/goroce/goroce/tests/require"
)

// inContainer are the words before a command that is to run as in a container of an ordinary user: with
// user, PID, mount, IPC and UTS namespaces of its own. The network is the host's, as programs meet by it.
var inContainer = []string{"unshare", "--map-root-user", "--pid", "--fork", "--kill-child", "--mount-proc", "--ipc",
	"--uts"}

// needContainers ends the test if an ordinary user cannot make namespaces.
func needContainers(t testing.TB) {
	t.Helper()
	require.Command(t, "unshare")
	cmd := exec.Command(inContainer[0], append(inContainer[1:], "true")...)
	asUser(cmd)
	if out, err := cmd.CombinedOutput(); err != nil {
		require.Missing(t, "an ordinary user cannot make namespaces: %v: %s", err, out)
	}
}

// TestProgramInContainer: the daemon of the host serves a program in a container, and reaches its memory.
func TestProgramInContainer(t *testing.T) {
	installed(t, "ibv_rc_pingpong")
	needContainers(t)
	const port = "18580"
	h := newHost(t, nil)
	server := h.run(t, "ibv_rc_pingpong", "-g", "0", "-p", port)
	server.listens(t, 18580)
	args := append(inContainer, goroced, "run", "--socket", h.socket, "--", "ibv_rc_pingpong", "-g", "0", "-p", port,
		"127.0.0.1")
	if out := h.start(t, args...).ok(t); !regexp.MustCompile(pong).MatchString(out) {
		t.Error(out)
	}
	server.ok(t)
}

// TestDaemonInContainer: a daemon in a container cannot reach the memory of a process outside, and says why.
func TestDaemonInContainer(t *testing.T) {
	installed(t, "ibv_rc_pingpong")
	needContainers(t)
	h := &host{addr: linktest.Loopback(), dir: userDir(t), libs: libs(t)}
	h.socket = filepath.Join(h.dir, "s")
	daemon := h.start(t, append(inContainer, goroced, "serve", "--socket", h.socket, "--admin",
		filepath.Join(h.dir, "a"), "--addr", h.addr.String(), "--set", "drain=0s")...)
	require.Until(t, "the daemon listens", func() bool {
		daemon.mustRun(t)
		return strings.Contains(daemon.out.String(), "msg=ready")
	})
	out, err := h.run(t, "env", "GOROCE_MR=process", "GOROCE_DEBUG=1", "ibv_rc_pingpong", "-g", "0").wait(t)
	if err == nil || !strings.Contains(out, "in another PID namespace") {
		t.Errorf("%v, want that it is in another PID namespace\n%s", err, out)
	}
}

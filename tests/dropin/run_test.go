//go:build linux

package dropin

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/goroce/goroce/roce/daemon/dropin"
	"github.com/goroce/goroce/tests/require"
)

// newUser returns this machine as an ordinary user finds it who has a runtime directory and no daemon.
// Its daemons have a loopback address of their own, and end a second after their last client.
func newUser(t testing.TB, env ...string) *user {
	t.Helper()
	u := &user{host: host{dir: userDir(t), libs: libs(t)}}
	u.env = append(append(u.host.env(), "XDG_RUNTIME_DIR="+u.dir, "GOROCED_DEVICE_ADDRESSES="+ownAddr(t),
		"GOROCED_IDLE_EXIT=1s"), env...)
	u.socket = filepath.Join(u.dir, "goroce", "goroced.sock")
	t.Cleanup(func() {
		require.Until(t, "the daemon ends", func() bool {
			_, err := os.Lstat(u.socket)
			return errors.Is(err,
				fs.ErrNotExist)
		})
	})
	return u
}

type user struct {
	host
	env []string
}

// do starts goroced as the user.
func (u *user) do(t testing.TB, args ...string) *process {
	t.Helper()
	cmd := exec.Command(goroced, args...)
	cmd.Env = u.env
	return u.launch(t, cmd)
}

// TestRunStarts: without a daemon there is one, which is no child of the program, and ends when the program has.
func TestRunStarts(t *testing.T) {
	t.Parallel()
	u := newUser(t, "LD_PRELOAD=", "LD_LIBRARY_PATH=/nowhere")
	out := u.do(t, "run", "sh", "-c", `echo $GOROCED_SOCKET $LD_LIBRARY_PATH $LD_PRELOAD; ls /sys/class/infiniband
		read children </proc/$$/task/$$/children; echo children: $children; exit 7`)
	text, err := out.wait(t)
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 7 {
		t.Errorf("ended with %v, want 7", err)
	}
	want := fmt.Sprintf("%s %s:/nowhere %s\ngoroce_lo\nchildren:\n", u.socket, u.libs,
		filepath.Join(u.libs, dropin.Sys))
	if text != want {
		t.Errorf("the program printed\n%s, want\n%s", text, want)
	}
}

// TestRunTogether: programs that are started at once share one daemon.
func TestRunTogether(t *testing.T) {
	t.Parallel()
	u := newUser(t)
	const programs = 5
	var list []*process
	for range programs {
		list = append(list, u.do(t, "run", "--", "sh", "-c", "ls /sys/class/infiniband"))
	}
	for _, p := range list {
		p.ok(t)
	}
	log, err := os.ReadFile(filepath.Join(u.dir, "goroce", "goroced.log"))
	if err != nil || len(log) > 0 {
		t.Errorf("the log says %q, %v; want nothing", log, err)
	}
}

// status asks the user's daemon how it is.
func (u *user) status(t testing.TB) (status struct{ PID, Clients int }) {
	t.Helper()
	cmd := exec.Command(goroced, "status", "--json")
	cmd.Env = u.env
	if err := json.Unmarshal([]byte(u.launch(t, cmd).ok(t)), &status); err != nil {
		t.Fatal(err)
	}
	return status
}

// becomes waits until `goroced run` has become a program.
func (p *process) becomes(t testing.TB, name string) {
	t.Helper()
	require.Until(t, name+" runs", func() bool {
		p.mustRun(t)
		comm, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", p.cmd.Process.Pid))
		return string(comm) == name+"\n"
	})
}

// TestRunKeeps: the program is a client of the daemon as long as it runs, whether it uses it or not.
func TestRunKeeps(t *testing.T) {
	t.Parallel()
	u := newUser(t)
	p := u.do(t, "run", "--", "sleep", "1000")
	p.becomes(t, "sleep")
	if got := u.status(t).Clients; got != 1 {
		t.Errorf("%d clients while the program runs, want 1", got)
	}
	_, _ = p.signal(t, syscall.SIGTERM) // the daemon then has no client, and ends (newUser)
}

// TestRunKeepsForOthers: so are programs that it has started, and that outlive it.
func TestRunKeepsForOthers(t *testing.T) {
	t.Parallel()
	u := newUser(t)
	out := u.do(t, "run", "--", "sh", "-c", "sleep 1000 >/dev/null 2>&1 & echo $!").ok(t)
	pid, err := strconv.Atoi(strings.TrimSpace(out))
	if err != nil {
		t.Fatal(err)
	}
	if got := u.status(t).Clients; got != 1 {
		t.Errorf("%d clients while a program runs that the first has started, want 1", got)
	}
	if err := syscall.Kill(pid, syscall.SIGTERM); err != nil { // the daemon then has no client, and ends (newUser)
		t.Error(err)
	}
}

// TestRunSignal: signals reach the program, and its end by one is seen.
func TestRunSignal(t *testing.T) {
	t.Parallel()
	u := newUser(t)
	p := u.do(t, "run", "--", "sh", "-c", "trap 'echo caught; exit 3' TERM; echo ready; while :; do sleep 0.01; done")
	require.Until(t, "the program is ready", func() bool {
		p.mustRun(t)
		return strings.Contains(p.out.String(),
			"ready")
	})
	out, err := p.signal(t, syscall.SIGTERM)
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 3 || !strings.Contains(out, "caught") {
		t.Errorf("%v, want exit code 3 and %q: %s", err, "caught", out)
	}
	p = u.do(t, "run", "--", "sleep", "1000")
	p.becomes(t, "sleep")
	_, err = p.signal(t, syscall.SIGINT)
	if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGINT {
		t.Errorf("%v, want that it was interrupted", err)
	}
}

// TestRunErrors: what is wrong is said in one line, with the status that shells have for it.
func TestRunErrors(t *testing.T) {
	t.Parallel()
	u := newUser(t)
	for _, c := range []struct {
		args string
		code int
		want string
		env  []string
	}{
		{"run -- nosuch-program", 127, "nosuch-program", nil},
		{"run -- /etc/passwd", 126, "permission denied", nil},
		{"run", 2, "program", nil},
		{"run --", 2, "program", nil},
		{"run --socket /nowhere/s -- true", 1, "/nowhere/s: there is no such socket", nil},
		{"run -- true", 1, "/gone/s: there is no such socket", []string{"GOROCED_SOCKET=/gone/s"}},
		{"run -- true", 1, "GOROCE_LIB is /nowhere", []string{"GOROCE_LIB=/nowhere"}},
		{"run -- true", 1, "install gcc", []string{"GOROCE_LIB=", "CC=no-compiler"}},
		{"run -- true", 1, "the daemon that was started has ended: ", []string{"GOROCED_DEVICE_ADDRESSES=192.0.2.177"}},
		{"run -- true", 1, "GOROCED_NOSUCH", []string{"GOROCED_NOSUCH=1"}},
	} {
		cmd := exec.Command(goroced, strings.Fields(c.args)...)
		cmd.Env = append(append([]string{}, u.env...), c.env...)
		if c.code == 1 { // without the daemon that the other rows have started
			cmd.Env = append(cmd.Env, "XDG_RUNTIME_DIR="+userDir(t))
		}
		out, err := u.launch(t, cmd).wait(t)
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != c.code || !strings.Contains(out, c.want) ||
			strings.Count(out, "\n") != 1 {
			t.Errorf("%v goroced %s: %v, want %d and one line that says %q:\n%s", c.env, c.args, err, c.code,
				c.want, out)
		}
	}
}

// TestRunReplaces: a program that comes when the daemon has been killed gets another one.
func TestRunReplaces(t *testing.T) {
	t.Parallel()
	u := newUser(t)
	p := u.do(t, "run", "--", "sleep", "1000")
	p.becomes(t, "sleep")
	pid := u.status(t).PID
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if got := u.do(t, "run", "--", "ls", "/sys/class/infiniband").ok(t); got != "goroce_lo\n" {
		t.Errorf("the program sees %q, want %q", got, "goroce_lo\n")
	}
}

// TestRunBuilds: programs that are started at once, by a user who has no libraries, find them built once.
func TestRunBuilds(t *testing.T) {
	t.Parallel()
	u := newUser(t, dropin.Variable+"=")
	var list []*process
	for range 2 {
		list = append(list, u.do(t, "run", "--", "sh", "-c", "echo $LD_LIBRARY_PATH"))
	}
	outs := sync.Map{}
	for _, p := range list {
		outs.Store(p.ok(t), true)
	}
	n := 0
	outs.Range(func(any, any) bool { n++; return true })
	entries, err := os.ReadDir(filepath.Join(u.dir, ".cache", "goroce"))
	if n != 1 || err != nil || len(entries) != 1 {
		t.Errorf("%d places, in the cache are %v, %v; want one", n, entries, err)
	}
}

// TestEnv: a shell takes what env prints, and so do those who want no shell.
func TestEnv(t *testing.T) {
	h := newHost(t, nil)
	preload := filepath.Join(h.libs, dropin.Sys)
	plain := fmt.Sprintf("GOROCED_SOCKET=%s\nLD_LIBRARY_PATH=%s\nLD_PRELOAD=%s\n", h.socket, h.libs, preload)
	if got := h.start(t, goroced, "env", "--plain", "--socket", h.socket).ok(t); got != plain {
		t.Errorf("plain:\n%s, want\n%s", got, plain)
	}
	got := h.start(t, "sh", "-c", `export LD_LIBRARY_PATH=/x; eval "$(`+goroced+` env --socket `+h.socket+`)"
		echo $GOROCED_SOCKET $LD_LIBRARY_PATH $LD_PRELOAD; ls /sys/class/infiniband`).ok(t)
	if want := fmt.Sprintf("%s %s:/x %s\ngoroce_lo\n", h.socket, h.libs, preload); got != want {
		t.Errorf("in a shell:\n%s, want\n%s", got, want)
	}
	out, err := h.start(t, goroced, "env", "--socket", "/nowhere/s").wait(t)
	if err != nil || !strings.Contains(out, "goroced: env: cannot reach goroced: /nowhere/s") ||
		!strings.Contains(out, "export GOROCED_SOCKET='/nowhere/s'\n") {
		t.Errorf("without a daemon: %v, want the reason and the variables\n%s", err, out)
	}
}

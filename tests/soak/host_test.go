package soak

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/goroce/goroce/roce/daemon/dropin"
	"github.com/goroce/goroce/roce/daemon/server"
	"github.com/goroce/goroce/tests/linktest"
	"github.com/goroce/goroce/tests/require"
)

// host is a namespace with a daemon.
type host struct {
	name   string
	ns     *linktest.Namespace
	mtu    int
	dir    string
	socket string
	libs   string // for programs in C
	runs   atomic.Pointer[process]
	web    http.Client // of the admin socket
}

func newHost(t testing.TB, name string, ns *linktest.Namespace, mtu int, libs string) *host {
	t.Helper()
	dir := t.TempDir()
	h := &host{name: name, ns: ns, mtu: mtu, dir: dir, socket: filepath.Join(dir, "s"), libs: libs}
	h.web = http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", filepath.Join(dir, "a"))
		}}}
	h.configure(t, "info")
	h.startDaemon(t)
	return h
}

// daemon returns the daemon's process.
func (h *host) daemon() *process { return h.runs.Load() }

// configure writes the daemon's configuration.
func (h *host) configure(t testing.TB, level string) {
	t.Helper()
	text := fmt.Sprintf("drain = \"1s\"\n[log]\nlevel = %q\n[[device]]\nname = \"soft\"\nlink = \"udp\"\nnetif = %q\n",
		level, h.ns.IfName)
	if err := os.WriteFile(filepath.Join(h.dir, "config"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// startDaemon starts the daemon, which takes over the socket of an earlier one.
func (h *host) startDaemon(t testing.TB) {
	t.Helper()
	d := start(t, h.ns, exec.Command(goroced, "serve", "--config", filepath.Join(h.dir, "config"), "--socket",
		h.socket, "--admin", filepath.Join(h.dir, "a")))
	h.runs.Store(d)
	require.Until(t, "the daemon of "+h.name+" is ready", func() bool {
		if d.ended() {
			t.Fatalf("the daemon of %s has ended: %v\n%s", h.name, d.err, d.out.String())
		}
		return strings.Contains(d.out.String(), "msg=ready")
	})
}

// wrong matches lines that must never occur in a daemon's log.
var wrong = regexp.MustCompile(`(?m)^(panic|fatal error|goroutine \d+|WARNING: DATA RACE|.*level=ERROR).*$`)

// judge checks the daemon's log, and that it runs.
func (h *host) judge(t testing.TB) {
	t.Helper()
	log := h.daemon().out.String()
	if at := wrong.FindStringIndex(log); at != nil {
		t.Errorf("the log of %s: %.8000s", h.name, log[at[0]:])
	}
	if h.daemon().ended() {
		t.Fatalf("the daemon of %s has ended: %v", h.name, h.daemon().err)
	}
}

// stop ends the daemon in an orderly way.
func (h *host) stop(t testing.TB) {
	t.Helper()
	h.judge(t)
	h.daemon().signal(syscall.SIGTERM)
	if !h.daemon().within(30*time.Second) || h.daemon().err != nil {
		t.Errorf("the daemon of %s does not end well: %v", h.name, h.daemon().err)
	}
}

// get returns the answer of the admin socket.
func (h *host) get(path string) ([]byte, error) {
	r, err := h.web.Get("http://goroced" + path)
	if err != nil {
		return nil, err
	}
	defer r.Body.Close()
	return io.ReadAll(r.Body)
}

// listens reports whether a process listens by rdma_cm.
func (h *host) listens(pid int) bool {
	var list []server.CMInfo
	text, err := h.get("/v1/cm")
	return err == nil && json.Unmarshal(text, &list) == nil && slices.ContainsFunc(list, func(id server.CMInfo) bool {
		return id.State == "LISTEN" && int(id.PID) == pid
	})
}

// inC is the command of a program in C.
func (h *host) inC(args ...string) *exec.Cmd {
	cmd := exec.Command(goroced, append([]string{"run", "--socket", h.socket, "--"}, args...)...)
	cmd.Env = append(os.Environ(), "HOME="+h.dir, dropin.Variable+"="+h.libs)
	return cmd
}

// try runs a command on the host and returns its output, or the error.
func (h *host) try(args ...string) string {
	var out []byte
	err := h.ns.Do(func() (err error) {
		out, err = exec.Command(args[0], args[1:]...).CombinedOutput()
		return err
	})
	if err != nil {
		return fmt.Sprintf("%s%v\n", out, err)
	}
	return string(out)
}

// state describes what the host knows of its network, for a failure that nothing explains.
func (h *host) state() string {
	var b strings.Builder
	for _, args := range [][]string{{"ip", "neigh"}, {"ip", "route", "show", "cache"}, {"ip", "-s", "link"},
		{"ss", "-uanm"}, {goroced, "status", "--admin", filepath.Join(h.dir, "a")},
		{goroced, "stat", "--admin", filepath.Join(h.dir, "a")},
		{goroced, "qp", "--admin", filepath.Join(h.dir, "a")}} {
		fmt.Fprintf(&b, "%s: %s\n%s", h.name, strings.Join(args, " "), h.try(args...))
	}
	if text, err := h.get("/debug/pprof/goroutine?debug=1"); err == nil {
		fmt.Fprintf(&b, "%.20000s\n", text)
	}
	fmt.Fprintf(&b, "log of %s: %s\n", h.name, h.daemon().out.String())
	return b.String()
}

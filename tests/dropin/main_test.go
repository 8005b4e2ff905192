//go:build linux

package dropin

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/goroce/goroce/roce/daemon/dropin"
	"github.com/goroce/goroce/tests/gobuild"
	"github.com/goroce/goroce/tests/linktest"
	"github.com/goroce/goroce/tests/require"
)

// What the tests have built, in a directory that the ordinary user may read.
var (
	work    string
	goroced string
)

func TestMain(m *testing.M) {
	code, err := build(m.Run)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func build(run func() int) (code int, err error) {
	if work, err = os.MkdirTemp("", "goroce-dropin"); err != nil {
		return 1, err
	}
	defer os.RemoveAll(work)
	if err := os.Chmod(work, 0o755); err != nil {
		return 1, err
	}
	goroced = filepath.Join(work, "goroced")
	if err := gobuild.Program(goroced, "../../cmd/goroced"); err != nil {
		return 1, err
	}
	return run(), nil
}

var all = flag.Bool("dropin.all", false, "run the rows that take minutes on a busy machine, too")

// rounds returns how much work a test does: in a usual run, in one of all rounds (GOROCE_FULL=1), and with
// -dropin.all.
func rounds(usual, full, night int) int {
	if *all {
		return night
	}
	return require.Rounds(usual, full)
}

// patience bounds the waits for what must happen.
const patience = 2 * time.Minute

// libraries are built once, and without a warning.
var libraries = sync.OnceValues(func() (string, error) {
	cc := os.Getenv("CC")
	if cc == "" {
		cc = "cc"
	}
	if err := os.Setenv("CC", cc+" -Werror"); err != nil {
		return "", err
	}
	defer os.Setenv("CC", cc)
	return dropin.Build(context.Background(), work)
})

// built has the outcome of each command that has built something: tests that run beside each other share it.
var built sync.Map // from a path to a func() error

// buildOnce runs a compiler, unless another test has.
func buildOnce(t testing.TB, path, compiler string, args ...string) {
	t.Helper()
	build, _ := built.LoadOrStore(path, sync.OnceValue(func() error {
		if out, err := exec.Command(compiler, args...).CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w\n%s", compiler, err, out)
		}
		return nil
	}))
	if err := build.(func() error)(); err != nil {
		t.Fatal(err)
	}
}

// besides lets a test run beside others. The libraries are built before, as this changes the environment that other
// compilers have.
func besides(t *testing.T) {
	t.Helper()
	_ = libs(t)
	t.Parallel()
}

// libs returns the directory of the libraries.
func libs(t testing.TB) string {
	t.Helper()
	require.Command(t, "cc")
	dir, err := libraries()
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// packages has the packages of Debian with the programs that tests run.
var packages = map[string]string{"ibv_": "ibverbs-utils", "ib_": "perftest", "ibstat": "infiniband-diags",
	"rping": "rdmacm-utils", "ucmatose": "rdmacm-utils", "udaddy": "rdmacm-utils",
	"mckey": "rdmacm-utils", "rdma_": "rdmacm-utils", "rstream": "rdmacm-utils", "riostream": "rdmacm-utils",
	"cmtime": "rdmacm-utils",
	"ucx_":   "ucx-utils"}

// installed ends the test unless a program is there.
func installed(t testing.TB, program string) {
	t.Helper()
	if _, err := exec.LookPath(program); err == nil {
		return
	}
	for prefix, name := range packages {
		if strings.HasPrefix(program, prefix) {
			require.Missing(t, "program %s of package %s is not on the PATH", program, name)
		}
	}
	require.Missing(t, "program %s is not on the PATH", program)
}

// nobody is the ordinary user that tests are, if they run as root.
const nobody = 65534

// asUser has a command run as an ordinary user, and end with the tests.
func asUser(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if os.Geteuid() == 0 {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: nobody, Gid: nobody}
	}
}

// userDir makes a directory of the ordinary user.
func userDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp(work, "user")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if os.Geteuid() == 0 {
		if err := os.Chown(dir, nobody, nobody); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// host is a machine with a daemon on it: this one, or a network namespace.
type host struct {
	addr   netip.Addr // of the daemon's only device
	socket string
	dir    string
	in     *linktest.Namespace // nil: this one
	libs   string
	root   bool // its programs and its daemon keep the rights of the test
	daemon *process
	killed bool // the daemon, by killDaemon
}

// newHost starts a daemon of an ordinary user, with one address.
func newHost(t testing.TB, in *linktest.Namespace) *host {
	t.Helper()
	h := &host{addr: linktest.Loopback(), dir: userDir(t), in: in, libs: libs(t)}
	name := "" // after the interface
	if in != nil {
		h.addr, name = in.Addr4, "blue"
	}
	h.startDaemon(t, "--addr", h.addr.String(), "--set", "device.name="+name)
	return h
}

// startDaemon starts a daemon, whose device the flags describe. It must run until the end of the test, and end on a
// signal.
func (h *host) startDaemon(t testing.TB, flags ...string) {
	t.Helper()
	h.socket = filepath.Join(h.dir, "s")
	p := h.start(t, append([]string{goroced, "serve", "--socket", h.socket, "--admin", filepath.Join(h.dir, "a"),
		"--set", "drain=0s"}, flags...)...)
	h.daemon = p
	require.Until(t, "the daemon listens", func() bool {
		p.mustRun(t)
		return strings.Contains(p.out.String(), "msg=ready")
	})
	t.Cleanup(func() {
		if _, err := p.signal(t, syscall.SIGTERM); err != nil && !h.killed {
			t.Errorf("the daemon ended with %v\n%s", err, p.out.String())
		}
	})
}

// killDaemon ends the host's daemon, which has no chance to say anything.
func (h *host) killDaemon(t testing.TB) {
	t.Helper()
	h.killed = true
	_, _ = h.daemon.signal(t, syscall.SIGKILL)
}

// process is a program that runs, or has run.
type process struct {
	cmd  *exec.Cmd
	out  output // both streams
	done chan struct{}
	err  error // once done is closed
}

// output is what a program has written so far.
type output struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.Write(b)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}

// start starts a program on a host as an ordinary user. It is killed at the end of the test, if it still runs.
func (h *host) start(t testing.TB, args ...string) *process {
	t.Helper()
	return h.launch(t, exec.Command(args[0], args[1:]...))
}

func (h *host) launch(t testing.TB, cmd *exec.Cmd) *process {
	t.Helper()
	p := &process{cmd: cmd, done: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = &p.out, &p.out
	cmd.Dir = "/"
	cmd.WaitDelay = time.Second // for what a child of it holds open
	if cmd.Env == nil {
		cmd.Env = h.env()
	}
	if h.root {
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	} else {
		asUser(cmd)
	}
	// Pdeathsig kills the process when the thread that has started it ends, and a thread ends if a goroutine leaves it
	// in another namespace (see linktest.Namespace.Do). So the thread is kept until the process has ended.
	started := make(chan error, 1)
	run := func() error {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			p.err = cmd.Wait()
			close(p.done)
		}
		return nil
	}
	go func() {
		if h.in == nil {
			_ = run()
		} else if err := h.in.Do(run); err != nil {
			started <- err
		}
	}()
	if err := <-started; err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-p.done
	})
	return p
}

// env is the environment of a user who has set nothing but where the libraries are.
func (h *host) env() []string {
	return append(clean(), "HOME="+h.dir, dropin.Variable+"="+h.libs)
}

// ownAddr returns a loopback address that no other daemon has.
func ownAddr(testing.TB) string { return linktest.Loopback().String() }

// clean is the environment without what leads to a daemon or to libraries.
func clean() (env []string) {
	for _, v := range os.Environ() {
		if name, _, _ := strings.Cut(v, "="); !strings.HasPrefix(name, "GOROCE") && !strings.HasPrefix(name, "LD_") &&
			!strings.HasPrefix(name, "XDG_") && name != "HOME" {
			env = append(env, v)
		}
	}
	return env
}

// run starts a program by `goroced run`, which finds the host's daemon.
func (h *host) run(t testing.TB, args ...string) *process {
	t.Helper()
	return h.start(t, append([]string{goroced, "run", "--socket", h.socket, "--"}, args...)...)
}

// wait waits until the program ends, and returns what it has written.
func (p *process) wait(t testing.TB) (string, error) {
	t.Helper()
	return p.waitFor(t, patience)
}

func (p *process) waitFor(t testing.TB, limit time.Duration) (string, error) {
	t.Helper()
	select {
	case <-p.done:
		return p.out.String(), p.err
	case <-time.After(limit):
		_ = p.cmd.Process.Kill()
		<-p.done
		t.Fatalf("%q does not end:\n%s", p.cmd.Args, p.out.String())
		return "", nil
	}
}

// ok waits until the program ends, which must be with success.
func (p *process) ok(t testing.TB) string {
	t.Helper()
	out, err := p.wait(t)
	if err != nil {
		t.Fatalf("%q: %v\n%s", p.cmd.Args, err, out)
	}
	return out
}

// signal sends a signal and waits for the end.
func (p *process) signal(t testing.TB, s os.Signal) (string, error) {
	t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		t.Fatal(err)
	}
	return p.wait(t)
}

// mustRun ends the test if the program has ended.
func (p *process) mustRun(t testing.TB) {
	t.Helper()
	select {
	case <-p.done:
		t.Fatalf("%q has ended: %v\n%s", p.cmd.Args, p.err, p.out.String())
	default:
	}
}

// listens waits until a program of the host has a socket at a port (linktest.Listens).
func (p *process) listens(t testing.TB, port int) {
	t.Helper()
	require.Until(t, fmt.Sprintf("%q listens on port %d", p.cmd.Args, port), func() bool {
		p.mustRun(t)
		return linktest.Listens(p.cmd.Process.Pid, port)
	})
}

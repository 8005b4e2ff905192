package daemon

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/goroce/goroce/roce/daemon/server"
	"github.com/goroce/goroce/tests/gobuild"
	"github.com/goroce/goroce/tests/linktest"
	"github.com/goroce/goroce/tests/require"
)

// goroced is the path of the program that the tests have built.
var goroced string

func TestMain(m *testing.M) {
	if role := os.Getenv(roleEnv); role != "" {
		runChild(role)
		return
	}
	dir, err := os.MkdirTemp("", "goroced")
	if err == nil {
		goroced = filepath.Join(dir, "goroced")
		var flags []string
		if require.Full() {
			flags = []string{"-tags", "guardmaps"} // a program that no other package's tests need
		}
		err = gobuild.Program(goroced, "../../cmd/goroced", flags...)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

// patience bounds the waits for events that must happen; it is longer than they take on any machine.
const patience = 30 * time.Second

// newSeed returns the seed of a test, and prints it.
func newSeed(t testing.TB) uint64 {
	seed := rand.Uint64()
	if s := os.Getenv("GOROCE_SEED"); s != "" {
		var err error
		if seed, err = strconv.ParseUint(s, 0, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("GOROCE_SEED=%d", seed)
	return seed
}

// daemon is a running goroced.
type daemon struct {
	testing.TB
	cmd    *exec.Cmd
	dir    string
	addr   string
	socket string
	http   http.Client
	log    logText
	ended  chan error // gets the result of the process
}

// logText is what the daemon has written.
type logText struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logText) add(line string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.buf.WriteString(line)
}

func (l *logText) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// startDaemon starts a daemon on a loopback address of its own, with settings in the form of
// --set. At the end of the test the daemon must still run, and end on a signal.
func startDaemon(t testing.TB, settings ...string) *daemon {
	t.Helper()
	d := startDaemonAt(t, t.TempDir(), linktest.Loopback().String(), settings...)
	t.Cleanup(d.stop)
	return d
}

// startDaemonAt starts a daemon whose sockets lie in dir.
func startDaemonAt(t testing.TB, dir, addr string, settings ...string) *daemon {
	t.Helper()
	config := filepath.Join(dir, "config")
	if err := os.WriteFile(config, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	d := &daemon{TB: t, dir: dir, addr: addr, socket: filepath.Join(dir, "s"), ended: make(chan error, 1)}
	path := filepath.Join(dir, "a")
	d.http.Transport = &http.Transport{DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			var dialer net.Dialer
			return dialer.DialContext(ctx, "unix", path)
		}}
	args := []string{"serve", "--config", config, "--socket", d.socket, "--admin", path, "--addr", addr, "--set",
		"drain=1s"}
	for _, s := range settings {
		args = append(args, "--set", s)
	}
	d.cmd = exec.Command(goroced, args...)
	d.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := d.cmd.StderrPipe()
	if err == nil {
		err = d.cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	ready := make(chan struct{})
	go d.listen(out, sync.OnceFunc(func() { close(ready) }))
	select {
	case <-ready:
	case err := <-d.ended:
		t.Fatalf("the daemon ended: %v\n%s", err, d.log.String())
	}
	return d
}

// lend reports the daemon's failures to the subtest t until t ends.
func (d *daemon) lend(t testing.TB) {
	owner := d.TB
	d.TB = t
	t.Cleanup(func() { d.TB = owner })
}

// listen records the daemon's log.
func (d *daemon) listen(out io.Reader, ready func()) {
	for r := bufio.NewReader(out); ; {
		line, err := r.ReadString('\n')
		d.log.add(line)
		if strings.Contains(line, "msg=ready") {
			ready()
		}
		if err != nil {
			d.ended <- d.cmd.Wait()
			return
		}
	}
}

// wrong matches lines that must never occur in a daemon's log.
var wrong = regexp.MustCompile(`(?m)^(panic|fatal error|goroutine \d+|WARNING: DATA RACE|.*level=ERROR).*$`)

// stop ends the daemon in an orderly way, and checks its exit code and log.
func (d *daemon) stop() {
	d.Helper()
	_ = d.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case err := <-d.ended:
		if err != nil {
			d.Errorf("the daemon ended with %v", err)
		}
	case <-time.After(patience):
		_ = d.cmd.Process.Signal(syscall.SIGQUIT)
		<-d.ended
		d.Errorf("the daemon does not end")
	}
	if at := wrong.FindStringIndex(d.log.String()); at != nil || d.Failed() {
		log := d.log.String()
		if at == nil {
			at = []int{max(0, len(log)-2000)}
		}
		d.Errorf("the daemon's log: %.8000s", log[at[0]:])
	}
}

// kill ends the daemon at once.
func (d *daemon) kill() {
	_ = d.cmd.Process.Kill()
	<-d.ended
}

// get returns the answer of the admin socket to a GET request.
func (d *daemon) get(path string) string {
	d.Helper()
	r, err := d.http.Get("http://goroced" + path)
	if err != nil {
		d.Fatal(err)
	}
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	if err != nil || r.StatusCode != http.StatusOK {
		d.Fatalf("%s: %s: %v: %.200s", path, r.Status, err, body)
	}
	return string(body)
}

// objectsOf counts the daemon's objects of a client process.
func (d *daemon) objectsOf(pid int) (n int) {
	d.Helper()
	for _, path := range []string{"/v1/qps", "/v1/mrs"} {
		var owners []server.Owner
		if err := json.Unmarshal([]byte(d.get(path)), &owners); err != nil {
			d.Fatalf("%s: %v", path, err)
		}
		for _, owner := range owners {
			if int(owner.PID) == pid {
				n++
			}
		}
	}
	return n
}

// forgets waits until the daemon has no objects of a process, and returns how long that took.
func (d *daemon) forgets(pid int) time.Duration {
	d.Helper()
	return require.Until(d, fmt.Sprintf("no object of process %d", pid), func() bool { return d.objectsOf(pid) == 0 })
}

// usage has the amounts of resources that a daemon holds.
type usage struct{ fds, memfds, goroutines, heapKiB, rssKiB int }

var (
	heap    = regexp.MustCompile(`(?m)^# HeapAlloc = (\d+)`)
	total   = regexp.MustCompile(`^goroutine profile: total (\d+)`)
	vmRSS   = regexp.MustCompile(`VmRSS:\s+(\d+) kB`)
	perProc = func(pid int, name string) string { return fmt.Sprintf("/proc/%d/%s", pid, name) }
)

// usage returns what the daemon holds after a garbage collection.
func (d *daemon) usage() (u usage) {
	d.Helper()
	number := func(re *regexp.Regexp, text string) int {
		m := re.FindStringSubmatch(text)
		if m == nil {
			d.Fatalf("no %v in %.200s", re, text)
		}
		n, _ := strconv.Atoi(m[1])
		return n
	}
	u.heapKiB = number(heap, d.get("/debug/pprof/heap?gc=1&debug=1")) >> 10
	u.goroutines = number(total, d.get("/debug/pprof/goroutine?debug=1"))
	fds, err := os.ReadDir(perProc(d.cmd.Process.Pid, "fd"))
	if err != nil {
		d.Fatal(err)
	}
	u.fds = len(fds)
	maps, err := os.ReadFile(perProc(d.cmd.Process.Pid, "maps"))
	if err != nil {
		d.Fatal(err)
	}
	u.memfds = bytes.Count(maps, []byte("/memfd:"))
	status, err := os.ReadFile(perProc(d.cmd.Process.Pid, "status"))
	if err != nil {
		d.Fatal(err)
	}
	u.rssKiB = number(vmRSS, string(status))
	return u
}

// How much the heap may grow, in KiB, by the capacity that tables and buffers keep; and how much
// resident memory may grow, by the heap's peak.
const moreHeap, moreRSS = 16 << 10, 64 << 10

// raceDetector reports whether tests and daemons are built with -race. The detector keeps memory for each
// mutex and atomic variable that a daemon ever had, outside the heap, and gives it back to no one.
var raceDetector = sync.OnceValue(func() bool {
	info, ok := debug.ReadBuildInfo()
	return ok && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"})
})

// settled returns what the daemon holds at rest. It measures until two results are the same, as
// connections to the admin socket open and close, too.
func (d *daemon) settled() (u usage) {
	d.Helper()
	require.Until(d, "the daemon is at rest", func() bool {
		last := u
		u = d.usage()
		return u.fds == last.fds && u.memfds == last.memfds && u.goroutines == last.goroutines
	})
	return u
}

// returnsTo waits until the daemon holds no more than before.
func (d *daemon) returnsTo(before usage) {
	d.Helper()
	var now usage
	defer func() {
		if d.Failed() {
			d.Logf("before: %+v, now: %+v\n%.6000s", before, now, d.get("/debug/pprof/goroutine?debug=1"))
		}
	}()
	require.Until(d, "the daemon holds what it held before", func() bool {
		now = d.usage()
		return now.fds <= before.fds && now.memfds <= before.memfds && now.goroutines <= before.goroutines &&
			now.heapKiB <= before.heapKiB+moreHeap && (raceDetector() || now.rssKiB <= before.rssKiB+moreRSS)
	})
	d.Logf("before: %+v, now: %+v", before, now)
}

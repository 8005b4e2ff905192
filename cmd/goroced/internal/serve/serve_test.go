package serve

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/goroce/goroce/cmd/goroced/internal/config"
	"github.com/goroce/goroce/internal/socket"
)

// asDaemon makes the test binary a daemon.
const asDaemon = "GOROCE_TEST_DAEMON"

func TestMain(m *testing.M) {
	if os.Getenv(asDaemon) == "" {
		os.Exit(m.Run())
	}
	load := func() (*config.Config, error) { return config.Load(config.Process("", nil)) }
	c, err := load()
	if err == nil {
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
		defer stop()
		err = Run(ctx, Options{Config: c, Load: load, Log: os.Stderr, Open: openFake})
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "failed:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// fake is a Daemon that greets its clients and counts them.
type fake struct {
	mu      sync.Mutex
	gone    *sync.Cond
	clients int
	visited bool // a client has come
	qps     int
}

func openFake(c *config.Config, _ socket.Paths, _ *slog.Logger) (Daemon, http.Handler, func() error, error) {
	if c.Connection.QPs == 0 {
		return nil, nil, nil, errors.New("no device")
	}
	f := &fake{qps: c.Connection.QPs}
	f.gone = sync.NewCond(&f.mu)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/devices", func(w http.ResponseWriter,
		r *http.Request) {
		WriteJSON(w, 200, PeerOf(r.Context()))
	})
	return f, mux, func() error { fmt.Fprintln(os.Stderr, "dropped"); return nil }, nil
}

func (f *fake) Serve(ctx context.Context, l *net.UnixListener) error {
	stop := context.AfterFunc(ctx, func() { _ = l.Close() })
	defer stop()
	for {
		conn, err := l.Accept()
		if err != nil {
			if ctx.Err() != nil {
				err = nil
			}
			return err
		}
		drop := context.AfterFunc(ctx, func() { _ = conn.Close() })
		go func() {
			defer drop()
			f.greet(conn)
		}()
	}
}

func (f *fake) count(n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.clients += n
	f.visited = true
	f.gone.Broadcast()
}

// greet keeps a client until it leaves.
func (f *fake) greet(conn net.Conn) {
	f.count(1)
	defer f.count(-1)
	defer conn.Close()
	_, _ = conn.Write([]byte("hello"))
	_, _ = conn.Read(make([]byte, 1))
}

func (f *fake) Reload(c *config.Config) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if c.Connection.QPs == 13 {
		return errors.New("thirteen QPs bring bad luck")
	}
	f.qps = c.Connection.QPs
	return nil
}

func (f *fake) Drain(ctx context.Context) error {
	defer context.AfterFunc(ctx, f.gone.Broadcast)()
	f.mu.Lock()
	defer f.mu.Unlock()
	for f.clients > 0 && ctx.Err() == nil {
		f.gone.Wait()
	}
	return ctx.Err()
}

// AwaitIdle does without the limit: it waits until one client has come, and all have left.
func (f *fake) AwaitIdle(ctx context.Context, _ time.Duration) error {
	defer context.AfterFunc(ctx, f.gone.Broadcast)()
	f.mu.Lock()
	defer f.mu.Unlock()
	for (f.clients > 0 || !f.visited) && ctx.Err() == nil {
		f.gone.Wait()
	}
	return ctx.Err()
}

func (f *fake) Alive(context.Context) error { return nil }

func (f *fake) Status() any {
	f.mu.Lock()
	defer f.mu.Unlock()
	return map[string]int{"clients": f.clients, "qps": f.qps}
}

// child is a daemon in a process of its own.
type child struct {
	t      *testing.T
	cmd    *exec.Cmd
	socket string
	admin  string
	file   string // its configuration
	notify *net.UnixConn
	log    strings.Builder // to be read after wait
}

// limit bounds what a test waits for.
const limit = 30 * time.Second

// prepare makes a daemon that has yet to start.
func prepare(t *testing.T, dir, configuration string, env ...string) *child {
	t.Helper()
	c := &child{t: t, socket: filepath.Join(dir, "s"), admin: filepath.Join(dir, "a"),
		file: filepath.Join(t.TempDir(), "goroced.toml")}
	c.configure(configuration)
	manager := filepath.Join(t.TempDir(), "notify")
	var err error
	if c.notify, err = net.ListenUnixgram("unixgram", &net.UnixAddr{Name: manager, Net: "unixgram"}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.notify.Close() })
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	t.Cleanup(cancel)
	c.cmd = exec.CommandContext(ctx, os.Args[0])
	c.cmd.Env = append([]string{asDaemon + "=1", "GOROCED_CONFIG=" + c.file, "GOROCED_SOCKET=" + c.socket,
		"GOROCED_ADMIN=" + c.admin, "NOTIFY_SOCKET=" + manager}, env...)
	c.cmd.Stderr = &c.log
	return c
}

func (c *child) configure(text string) {
	c.t.Helper()
	if err := os.WriteFile(c.file, []byte(text), 0o600); err != nil {
		c.t.Fatal(err)
	}
}

// start starts a daemon and returns when it is ready.
func start(t *testing.T, dir, configuration string, env ...string) *child {
	t.Helper()
	c := prepare(t, dir, configuration, env...)
	c.run()
	c.told("READY=1")
	return c
}

func (c *child) run() {
	c.t.Helper()
	if err := c.cmd.Start(); err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() {
		if c.cmd.ProcessState == nil {
			_ = c.cmd.Process.Kill()
			_ = c.cmd.Wait()
		}
	})
}

// told waits until the service manager is told something that begins so, and nothing
// else before.
func (c *child) told(want string) {
	c.t.Helper()
	b := make([]byte, 4096)
	_ = c.notify.SetReadDeadline(time.Now().Add(limit))
	n, err := c.notify.Read(b)
	if err != nil || !strings.HasPrefix(string(b[:n]), want) {
		c.t.Fatalf("the service manager is told %q, %v, want %q", b[:n], err, want)
	}
}

func (c *child) signal(s syscall.Signal) {
	c.t.Helper()
	if err := c.cmd.Process.Signal(s); err != nil {
		c.t.Fatal(err)
	}
}

// ends checks the exit code and that the log says all of this.
func (c *child) ends(code int, says ...string) {
	c.t.Helper()
	var exit *exec.ExitError
	if err := c.cmd.Wait(); err != nil && !errors.As(err, &exit) {
		c.t.Fatal(err)
	}
	if got := c.cmd.ProcessState.ExitCode(); got != code {
		c.t.Errorf("exit code %d, want %d", got, code)
	}
	for _, s := range says {
		if !strings.Contains(c.log.String(), s) {
			c.t.Errorf("the log is %q, want it to say %q", c.log.String(), s)
		}
	}
	if c.t.Failed() {
		c.t.Log(c.log.String())
	}
}

// connect returns a connection on which the daemon has greeted.
func (c *child) connect() *net.UnixConn {
	c.t.Helper()
	conn, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: c.socket, Net: "unixpacket"})
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { _ = conn.Close() })
	b := make([]byte, 16)
	_ = conn.SetReadDeadline(time.Now().Add(limit))
	if n, err := conn.Read(b); err != nil || string(b[:n]) != "hello" {
		c.t.Fatalf("greeted with %q, %v; want hello", b[:n], err)
	}
	return conn
}

// get makes a request on the admin socket.
func (c *child) get(path string) string {
	c.t.Helper()
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", c.admin)
		}}, Timeout: limit}
	return get(c.t, &client, "http://goroced"+path)
}

func get(t *testing.T, client *http.Client, url string) string {
	t.Helper()
	r, err := client.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%d %s", r.StatusCode, strings.TrimSpace(string(b)))
}

func (c *child) wantStatus(want string) {
	c.t.Helper()
	if got := c.get("/v1/status"); got != want {
		c.t.Errorf("status %s, want %s", got, want)
	}
}

// TestLife: a daemon starts, serves, reloads, refuses a bad configuration, and drains.
func TestLife(t *testing.T) {
	dir := t.TempDir()
	c := start(t, dir, "[limits.connection]\nqps = 7\n")
	conn := c.connect()
	c.wantStatus(`200 {"clients":1,"qps":7}`)

	for _, step := range []struct{ file, want string }{
		{"[limits.connection]\nqps = 8\n[log]\nformat = 'json'", `200 {"clients":1,"qps":8}`},
		{"[limits.connection]\nqp = 9", `200 {"clients":1,"qps":8}`},
		{"[limits.connection]\nqps = 13", `200 {"clients":1,"qps":8}`},
	} {
		c.configure(step.file)
		c.signal(syscall.SIGHUP)
		c.told("RELOADING=1\nMONOTONIC_USEC=")
		c.told("READY=1")
		c.wantStatus(step.want)
	}

	c.signal(syscall.SIGTERM)
	c.told("STOPPING=1\nEXTEND_TIMEOUT_USEC=15000000")
	c.wantStatus(`200 {"clients":1,"qps":8}`)
	_ = conn.Close()
	c.ends(0, "keys=log.format", "goroced.toml:2: limits.connection.qp: unknown key", "bad luck", "msg=stopped",
		"dropped\n")
	if strings.Contains(c.log.String(), "clients are dropped") {
		t.Error("clients were dropped")
	}
	for _, path := range []string{c.socket, c.admin} {
		if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s is left: %v; want %v", path, err, os.ErrNotExist)
		}
	}
}

// TestIdleExit: a daemon without clients ends, with all that it has made.
func TestIdleExit(t *testing.T) {
	c := start(t, t.TempDir(), "idle_exit = '1m'")
	_ = c.connect().Close() // the fake waits for a client, not for a minute
	c.ends(0, "no client is left", "msg=stopped", "dropped\n")
	if _, err := os.Lstat(c.socket); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s is left: %v, want %v", c.socket, err, os.ErrNotExist)
	}
}

// TestDrainDeadline: clients that stay do not keep the daemon.
func TestDrainDeadline(t *testing.T) {
	c := start(t, t.TempDir(), "drain = '1ms'\n[log]\nformat = 'json'")
	c.connect()
	c.signal(syscall.SIGTERM)
	c.ends(0, `"msg":"clients are dropped"`, "deadline exceeded")
}

// TestDrainCutShort: a second signal means it.
func TestDrainCutShort(t *testing.T) {
	c := start(t, t.TempDir(), "drain = '1h'")
	c.connect()
	c.signal(syscall.SIGTERM)
	c.told("STOPPING=1")
	c.wantStatus(`200 {"clients":1,"qps":16384}`)
	c.signal(syscall.SIGTERM)
	c.ends(0, "clients are dropped")
}

// TestWatchdog: the service manager hears from the daemon, while it drains too.
func TestWatchdog(t *testing.T) {
	c := start(t, t.TempDir(), "drain = '1h'", "WATCHDOG_USEC=20000")
	c.told("WATCHDOG=1")
	conn := c.connect()
	c.signal(syscall.SIGTERM)
	for want := "STOPPING=1"; want != ""; {
		b := make([]byte, 4096)
		_ = c.notify.SetReadDeadline(time.Now().Add(limit))
		n, err := c.notify.Read(b)
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasPrefix(string(b[:n]), want) {
			if want == "WATCHDOG=1" {
				break
			}
			want = "WATCHDOG=1"
		}
	}
	_ = conn.Close()
	c.ends(0, "stopped")
}

// TestOpenFails: the error is the daemon's, and the sockets are gone.
func TestOpenFails(t *testing.T) {
	c := prepare(t, t.TempDir(), "[limits.connection]\nqps = 0")
	c.run()
	c.ends(1, "failed: no device\n")
	if _, err := os.Lstat(c.socket); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("socket: %v, want %v", err, os.ErrNotExist)
	}
}

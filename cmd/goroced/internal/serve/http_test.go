package serve

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/goroce/goroce/cmd/goroced/internal/config"
	"github.com/goroce/goroce/tests/linktest"
)

// TestAdmin: a handler knows who asks; health and profiles are there.
func TestAdmin(t *testing.T) {
	c := start(t, t.TempDir(), "")
	code, body, _ := strings.Cut(c.get("/v1/devices"), " ")
	var p Peer
	if err := json.Unmarshal([]byte(body), &p); err != nil || code != "200" {
		t.Fatalf("%s %s: %v, want 200", code, body, err)
	}
	if want := (Peer{os.Getpid(), uint32(os.Geteuid()), uint32(os.Getegid())}); p != want {
		t.Errorf("the peer is %+v, want %+v", p, want)
	}
	for path, want := range map[string]string{
		"/healthz": `200 {"status":"ok"}`, "/v1/nosuch": "404", "/": "200 <!DOCTYPE html>", "/metrics": "404",
		"/debug/pprof/cmdline": "200 ",
	} {
		if got := c.get(path); !strings.HasPrefix(got, want) {
			t.Errorf("%s: %.100s, want %q in front", path, got, want)
		}
	}
}

// TestAuthorize: other users see, and change nothing.
func TestAuthorize(t *testing.T) {
	privileged := false
	h := authorize(http.HandlerFunc(func(_ http.ResponseWriter,
		r *http.Request) {
		privileged = Privileged(r.Context())
	}))
	own := uint32(os.Geteuid())
	for _, c := range []struct {
		peer         *Peer
		method, path string
		want         int
	}{
		{&Peer{UID: own}, "POST", "/v1/faults", 200},
		{&Peer{UID: 0}, "GET", "/v1/capture", 200},
		{&Peer{UID: own + 1}, "GET", "/v1/status", 200},
		{&Peer{UID: own + 1}, "POST", "/v1/status", 403},
		{&Peer{UID: own + 1}, "GET", "/v1/capture", 403},
		{&Peer{UID: own + 1}, "GET", "/v1/faults", 403},
		{&Peer{UID: own + 1}, "GET", "/v1/new", 403},
		{&Peer{UID: own + 1}, "GET", "/debug/pprof/heap", 403},
		{&Peer{UID: own + 1}, "GET", "/v1/status/../capture", 403},
		{&Peer{UID: own + 1}, "GET", "/", 200},
		{&Peer{UID: own + 1}, "GET", "//", 403},
		{nil, "GET", "/v1/status", 403},
	} {
		r := httptest.NewRequest(c.method, c.path, nil)
		if c.peer != nil {
			r = r.WithContext(context.WithValue(r.Context(), peerKey{}, c.peer))
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != c.want {
			t.Errorf("%+v: %s %s: %d, want %d", c.peer, c.method, c.path, w.Code, c.want)
		}
		if want := c.peer != nil && c.peer.UID != own+1; w.Code == 200 && privileged != want {
			t.Errorf("%+v: privileged %v, want %v", c.peer, privileged, want)
		}
	}
}

// TestMaySee: what is a user's own is for that user, root and the daemon's own user.
func TestMaySee(t *testing.T) {
	own := uint32(os.Geteuid())
	const owner, other = 100_000, 100_001
	for _, c := range []struct {
		peer *Peer
		want bool
	}{{&Peer{UID: owner}, true}, {&Peer{UID: 0}, true}, {&Peer{UID: own}, true}, {&Peer{UID: other}, false},
		{nil, false}} {
		ctx := t.Context()
		if c.peer != nil {
			ctx = context.WithValue(ctx, peerKey{}, c.peer)
		}
		if got := MaySee(ctx, owner); got != c.want {
			t.Errorf("%+v may see what is user %d's: %v, want %v", c.peer, owner, got, c.want)
		}
	}
}

// strangers is a listener whose clients are of the users that the test says, one after the other.
func strangers(t *testing.T, users <-chan uint32) (*peerListener, func() net.Conn) {
	t.Helper()
	address := &net.UnixAddr{Net: "unix", Name: filepath.Join(t.TempDir(), "admin")}
	below, err := net.ListenUnix("unix", address)
	if err != nil {
		t.Fatal(err)
	}
	l := newPeerListener(below)
	l.peerOf = func(*net.UnixConn) (*Peer, error) { return &Peer{UID: <-users}, nil }
	return l, func() net.Conn {
		t.Helper()
		conn, err := net.DialUnix("unix", nil, address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		_ = conn.SetDeadline(time.Now().Add(limit))
		return conn
	}
}

// TestAdminCrowd: users whose connections read and write nothing keep neither others nor root
// from the admin socket. One too many is told so, and closed.
func TestAdminCrowd(t *testing.T) {
	users := make(chan uint32, 1)
	l, dial := strangers(t, users)
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_,
			_ = w.Write([]byte("served"))
	})}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(l) }()
	defer func() {
		_ = server.Close()
		if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	}()
	ask := func(uid uint32) string {
		t.Helper()
		users <- uid
		conn := dial()
		_, _ = conn.Write([]byte("GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"))
		answer, err := io.ReadAll(conn)
		if err != nil && len(answer) == 0 {
			t.Fatalf("user %d gets no answer: %v", uid, err)
		}
		return string(answer)
	}
	own := uint32(os.Geteuid())
	const first = 100_000 // users that the daemon's own is not
	for i := range uint32(2 * maxAdmin) {
		users <- first + i%7
		dial() // and no word
	}
	for uid, want := range map[uint32]string{0: "served", own: "served", first: "503 ", first + 7: "503 "} {
		if answer := ask(uid); !strings.Contains(answer, want) {
			t.Errorf("user %d among silent connections of seven others: %.60q, want %s", uid, answer, want)
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for uid, n := range l.others {
		if n > maxAdminsUser {
			t.Errorf("user %d has %d connections, want at most %d", uid, n, maxAdminsUser)
		}
	}
}

// TestAdminLeaves: a connection that is closed makes room.
func TestAdminLeaves(t *testing.T) {
	users := make(chan uint32, 1)
	l, dial := strangers(t, users)
	defer l.Close()
	const uid = 100_000
	for range 3 * maxAdmin {
		users <- uid
		conn := dial()
		taken, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		_, _ = taken.Close(), conn.Close()
		_ = taken.Close() // as http.Server may
	}
	if l.all != 0 || l.sum != 0 || len(l.others) != 0 {
		t.Errorf("%d connections are left, %d of others: %v; want none", l.all, l.sum, l.others)
	}
}

// TestHTTPLimits: nobody holds a connection of any listener for ever.
func TestHTTPLimits(t *testing.T) {
	admin, err := net.ListenUnix("unix", &net.UnixAddr{Net: "unix", Name: filepath.Join(t.TempDir(), "admin")})
	if err != nil {
		t.Fatal(err)
	}
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &runner{Options: Options{Config: &config.Config{}}, log: slog.New(slog.DiscardHandler),
		failed: make(chan error, 2)}
	servers := r.serveHTTP(&sockets{admin: admin, metrics: tcp}, nil)
	defer servers.close()
	for _, s := range servers {
		if s.ReadHeaderTimeout <= 0 || s.ReadTimeout <= 0 || s.WriteTimeout <= 0 || s.IdleTimeout <= 0 {
			t.Errorf("limits %v, %v, %v, %v: one of them is none, want all", s.ReadHeaderTimeout, s.ReadTimeout,
				s.WriteTimeout, s.IdleTimeout)
		}
	}
}

// hanging is a daemon that does not answer.
type hanging struct {
	Daemon
	asked int
	until chan struct{}
}

func (h *hanging) Status() any                 { h.asked++; <-h.until; return nil }
func (h *hanging) Alive(context.Context) error { return nil }

// stalling is a daemon that answers, while a part of it does not go on until it is told to.
type stalling struct {
	Daemon
	asked chan struct{} // closed when it is first asked
	once  sync.Once
	goOn  chan struct{}
}

func newStalling() *stalling { return &stalling{asked: make(chan struct{}), goOn: make(chan struct{})} }

func (s *stalling) Status() any { return nil }

func (s *stalling) Alive(ctx context.Context) error {
	s.once.Do(func() { close(s.asked) })
	select {
	case <-s.goOn:
		return nil
	case <-ctx.Done():
		return errors.New("shard 1 hangs")
	}
}

// TestStalled: a daemon that answers is not healthy if a shard hangs, and /healthz says which, in time for a probe of
// 5 seconds. So does /metrics, which does not wait for the shard.
func TestStalled(t *testing.T) {
	for _, path := range []string{"/healthz", "/metrics"} {
		t.Run(path, func(t *testing.T) { stalled(t, path) })
	}
}

func stalled(t *testing.T, path string) {
	synctest.Test(t, func(t *testing.T) {
		d := newStalling()
		r := &runner{daemon: d, asking: make(chan struct{}, 1)}
		r.Metrics = func(Daemon) http.Handler {
			return http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-d.goOn })
		}
		mux := http.NewServeMux()
		r.observe(mux)
		ask := func() (int, string) {
			w := httptest.NewRecorder()
			mux.ServeHTTP(w, httptest.NewRequest("GET", path, nil))
			return w.Code, w.Body.String()
		}
		began := time.Now()
		if code, text := ask(); code != http.StatusServiceUnavailable || !strings.Contains(text, "shard 1 hangs") {
			t.Errorf("got %d %s, want 503 and why", code, text)
		}
		if took := time.Since(began); took >= 5*time.Second {
			t.Errorf("the answer takes %v, want less than 5s", took)
		}
		close(d.goOn)
		if code, text := ask(); code != http.StatusOK {
			t.Errorf("got %d %s once it goes on, want 200", code, text)
		}
	})
}

// TestWatchdogStalled: the service manager hears nothing while a shard hangs, and the daemon does not wait for it.
func TestWatchdogStalled(t *testing.T) {
	manager, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: filepath.Join(t.TempDir(), "n"),
		Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer manager.Close()
	t.Setenv("NOTIFY_SOCKET", manager.LocalAddr().String())
	var log strings.Builder
	d := newStalling()
	r := &runner{daemon: d, checking: make(chan struct{}, 1), log: slog.New(slog.NewTextHandler(&log, nil))}
	for range 2 {
		r.alive(t.Context())
		select {
		case <-d.asked:
		case <-time.After(limit):
			t.Fatal("the daemon is not asked whether it goes on")
		}
	}
	if !strings.Contains(log.String(), "the daemon stalls") {
		t.Errorf("the log has %q, want a word about the stall", &log)
	}
	notify(r.log, "STATUS=stalled")
	close(d.goOn)
	for _, want := range []string{"STATUS=stalled", "WATCHDOG=1"} {
		b := make([]byte, 100)
		_ = manager.SetReadDeadline(time.Now().Add(limit))
		if n, err := manager.Read(b); err != nil || string(b[:n]) != want {
			t.Fatalf("the service manager is told %q, %v; want %q", b[:n], err, want)
		}
	}
}

// TestUnhealthy: a daemon that hangs is called so, and is asked once.
func TestUnhealthy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &hanging{until: make(chan struct{})}
		r := &runner{daemon: d, asking: make(chan struct{}, 1)}
		for range 3 {
			w := httptest.NewRecorder()
			r.health(w, httptest.NewRequest("GET", "/healthz", nil))
			if w.Code != http.StatusServiceUnavailable {
				t.Errorf("health %d, want %d", w.Code, http.StatusServiceUnavailable)
			}
		}
		close(d.until)
		synctest.Wait()
		if d.asked != 1 {
			t.Errorf("asked %d times, want 1", d.asked)
		}
		w := httptest.NewRecorder()
		if r.health(w, httptest.NewRequest("GET", "/healthz", nil)); w.Code != http.StatusOK {
			t.Errorf("health %d once it answers, want %d", w.Code, http.StatusOK)
		}
	})
}

// freePort returns an address that nobody listens on.
func freePort(t *testing.T) string {
	t.Helper()
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(linktest.Port(t)))
}

// TestMetricsListener: what is served on TCP, where nobody knows who asks, shows neither traffic
// nor, unless a key says so, the insides of the daemon, and changes nothing.
func TestMetricsListener(t *testing.T) {
	addr := freePort(t)
	start(t, t.TempDir(), "[metrics]\nlisten = '"+addr+"'")
	for path, want := range map[string]string{"/healthz": `200 {"status":"ok"}`, "/": "200 <!DOCTYPE html>",
		"/debug/pprof/": "404", "/debug/pprof/cmdline": "404",
		"/debug/pprof/trace": "404", "/v1/status": "404", "/v1/devices": "404"} {
		if got := get(t, http.DefaultClient, "http://"+addr+path); !strings.HasPrefix(got, want) {
			t.Errorf("%s: %.100s, want %q in front", path, got, want)
		}
	}
	if page := get(t, http.DefaultClient, "http://"+addr); strings.Contains(page, "pprof") ||
		strings.Contains(page, "v1") {
		t.Errorf("the index lists what is not there: %s", page)
	}
	taken := prepare(t, t.TempDir(), "[metrics]\nlisten = '"+addr+"'")
	taken.run()
	taken.ends(1, "metrics.listen: listen tcp "+addr)
	if strings.Contains(taken.log.String(), "dropped") {
		t.Error("the device was opened, for nothing")
	}
}

// TestIndex: each page that the index lists is there, and none needs more than the admin socket's user.
func TestIndex(t *testing.T) {
	addr := freePort(t)
	c := start(t, t.TempDir(), "[metrics]\nlisten = '"+addr+"'\npprof = true")
	links := regexp.MustCompile(`href="([^"]*)"`)
	fakes := []string{"/metrics", "/v1/qps", "/v1/mrs", "/v1/cm", "/v1/failures", "/v1/stats", "/v1/faults",
		"/v1/capture"}
	visit := func(get func(path string) string) (paths []string) {
		for _, m := range links.FindAllStringSubmatch(get("/"), -1) {
			paths = append(paths, m[1])
			if got := get(m[1]); !strings.HasPrefix(got, "200 ") && !slices.Contains(fakes, m[1]) {
				t.Errorf("%s: %.100s, want 200", m[1], got)
			}
		}
		return paths
	}
	if paths := visit(c.get); len(paths) != len(observed)+len(profiles)+len(views) {
		t.Errorf("the admin socket lists %q, want %d of them", paths, len(observed)+len(profiles)+len(views))
	}
	want := []string{"/metrics", "/healthz", "/debug/pprof/"}
	tcp := func(path string) string { return get(t, http.DefaultClient, "http://"+addr+path) }
	if paths := visit(tcp); !slices.Equal(paths, want) {
		t.Errorf("with metrics.pprof TCP lists %q, want %q", paths, want)
	}
}

// TestMetrics: what the caller has to say is served on both.
func TestMetrics(t *testing.T) {
	d := newStalling()
	close(d.goOn)
	r := &runner{daemon: d, asking: make(chan struct{}, 1)}
	r.Metrics = func(Daemon) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("figures")) })
	}
	mux := http.NewServeMux()
	r.observe(mux)
	w := httptest.NewRecorder()
	if mux.ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil)); w.Body.String() != "figures" {
		t.Errorf("%d %s, want figures", w.Code, w.Body)
	}
}

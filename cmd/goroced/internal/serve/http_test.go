package serve

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"testing/synctest"
)

// TestAdmin: a handler knows who asks; health and profiles are there.
func TestAdmin(t *testing.T) {
	c := start(t, t.TempDir(), "")
	code, body, _ := strings.Cut(c.get("/v1/devices"), " ")
	var p Peer
	if err := json.Unmarshal([]byte(body), &p); err != nil || code != "200" {
		t.Fatalf("%s %s: %v", code, body, err)
	}
	if want := (Peer{os.Getpid(), uint32(os.Geteuid()), uint32(os.Getegid())}); p != want {
		t.Errorf("the peer is %+v, want %+v", p, want)
	}
	for path, want := range map[string]string{
		"/healthz": `200 {"status":"ok"}`, "/v1/nosuch": "404", "/": "404", "/metrics": "404",
		"/debug/pprof/cmdline": "200 ",
	} {
		if got := c.get(path); !strings.HasPrefix(got, want) {
			t.Errorf("%s: %.100s", path, got)
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
			t.Errorf("%+v: privileged %v", c.peer, privileged)
		}
	}
}

// hanging is a daemon that does not answer.
type hanging struct {
	Daemon
	asked int
	until chan struct{}
}

func (h *hanging) Status() any { h.asked++; <-h.until; return nil }

// TestUnhealthy: a daemon that hangs is called so, and is asked once.
func TestUnhealthy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &hanging{until: make(chan struct{})}
		r := &runner{daemon: d, asking: make(chan struct{}, 1)}
		for range 3 {
			w := httptest.NewRecorder()
			r.health(w, httptest.NewRequest("GET", "/healthz", nil))
			if w.Code != http.StatusServiceUnavailable {
				t.Errorf("health %d", w.Code)
			}
		}
		close(d.until)
		synctest.Wait()
		if d.asked != 1 {
			t.Errorf("asked %d times", d.asked)
		}
		w := httptest.NewRecorder()
		if r.health(w, httptest.NewRequest("GET", "/healthz", nil)); w.Code != http.StatusOK {
			t.Errorf("health %d once it answers", w.Code)
		}
	})
}

// TestMetricsListener: what is served on TCP shows no traffic and changes nothing.
func TestMetricsListener(t *testing.T) {
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := free.Addr().String()
	_ = free.Close()
	start(t, t.TempDir(), "[metrics]\nlisten = '"+addr+"'")
	for path, want := range map[string]string{"/healthz": `200 {"status":"ok"}`, "/debug/pprof/cmdline": "200",
		"/v1/status": "404", "/v1/devices": "404"} {
		if got := get(t, http.DefaultClient, "http://"+addr+path); !strings.HasPrefix(got, want) {
			t.Errorf("%s: %.100s", path, got)
		}
	}
	taken := prepare(t, t.TempDir(), "[metrics]\nlisten = '"+addr+"'")
	taken.run()
	taken.ends(1, "metrics.listen: listen tcp "+addr)
	if strings.Contains(taken.log.String(), "dropped") {
		t.Error("the device was opened, for nothing")
	}
}

// TestMetrics: what the caller has to say is served on both.
func TestMetrics(t *testing.T) {
	r := &runner{Options: Options{Metrics: func(Daemon) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("figures")) })
	}}}
	mux := http.NewServeMux()
	r.observe(mux)
	w := httptest.NewRecorder()
	if mux.ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil)); w.Body.String() != "figures" {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

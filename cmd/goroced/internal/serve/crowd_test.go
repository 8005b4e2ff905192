package serve

import (
	"bufio"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// crowded serves what h answers as the metrics listener does.
func crowded(t *testing.T, h http.Handler) (c *crowd, addr string) {
	t.Helper()
	c = newCrowd(maxMetrics)
	s := httptest.NewUnstartedServer(local(c.limit(h)))
	s.Config.ConnState = c.note
	s.Start()
	t.Cleanup(func() { s.CloseClientConnections(); s.Close() })
	return c, s.Listener.Addr().String()
}

// dialMetrics returns a connection on which a request has been answered, or none was made.
func dialMetrics(t *testing.T, addr string, request string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(limit))
	if _, err := conn.Write([]byte(request)); err != nil {
		t.Fatal(err)
	}
	return conn
}

// TestMetricsCrowd: connections that ask nothing, or only once, do not keep Prometheus out, and go when too many come.
func TestMetricsCrowd(t *testing.T) {
	c, addr := crowded(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte("figures"))
	}))
	const ask = "GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
	for i := range 3 * maxMetrics {
		switch conn := dialMetrics(t, addr, []string{"", "GET /met", ask}[i%3]); i % 3 {
		case 2:
			if _, err := http.ReadResponse(bufio.NewReader(conn), nil); err != nil {
				t.Fatalf("connection %d: %v", i, err)
			}
		}
	}
	r, err := http.ReadResponse(bufio.NewReader(dialMetrics(t, addr, ask)), nil)
	if err != nil || r.StatusCode != http.StatusOK {
		t.Fatalf("Prometheus gets %v, %v, want an answer", r, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if n := c.order.Len(); n > maxMetrics || len(c.at) != n {
		t.Errorf("%d connections are kept, %d are known, want %d at most", n, len(c.at), maxMetrics)
	}
}

// TestMetricsRequests: requests that hang are bounded, too, though their connections are closed.
func TestMetricsRequests(t *testing.T) {
	goOn, began := make(chan struct{}), make(chan struct{}, 2*maxMetrics)
	_, addr := crowded(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { began <- struct{}{}; <-goOn }))
	defer close(goOn)
	const ask = "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"
	for range maxMetrics {
		dialMetrics(t, addr, ask)
		<-began
	}
	r, err := http.ReadResponse(bufio.NewReader(dialMetrics(t, addr, ask)), nil)
	if err != nil || r.StatusCode != http.StatusServiceUnavailable {
		t.Fatalf("one too many gets %v, %v, want 503", r, err)
	}
}

// TestMetricsHost: a browser that was led here by the name of somebody else's host reads nothing.
func TestMetricsHost(t *testing.T) {
	h := local(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	for host, want := range map[string]int{"127.0.0.1:9471": 200, "127.0.0.2": 200, "[::1]:9471": 200, "[::1]": 200,
		"localhost:9471": 200, "localhost": 200, "": 200, "rebind.example:9471": 421, "rebind.example": 421,
		"127.0.0.1.rebind.example": 421, "10.0.0.1:9471": 421, "[": 421, "localhost.rebind.example": 421} {
		r := httptest.NewRequest("GET", "/metrics", nil)
		r.Host = host
		w := httptest.NewRecorder()
		if h.ServeHTTP(w, r); w.Code != want {
			t.Errorf("Host %q: got %d %s, want %d", host, w.Code, strings.TrimSpace(w.Body.String()), want)
		}
	}
}

package serve

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"os"
	"slices"
	"time"
)

// maxMetrics bounds the connections to the metrics listener.
const maxMetrics = 64

// Times that a client may take. Handlers whose answers take longer say so.
const (
	headerLimit = 5 * time.Second
	readLimit   = 10 * time.Second
	writeLimit  = 30 * time.Second
	idleLimit   = 10 * time.Second
)

// open lists the paths for every user who can connect to the admin socket. All others show or change other users'
// traffic, and are for root and the daemon's own user.
var open = []string{"/", "/healthz", "/metrics", "/v1/status", "/v1/devices", "/v1/qps", "/v1/mrs", "/v1/cm",
	"/v1/failures", "/v1/why", "/v1/why/capture", "/v1/stats"}

// healthLimit is how long the daemon may take to report its health, and each of its shards to take a turn.
const healthLimit = 3 * time.Second

// web are the HTTP servers.
type web []*http.Server

func (w web) close() {
	for _, s := range w {
		_ = s.Close()
	}
}

// serveHTTP serves the admin socket and, if configured, metrics on TCP.
func (r *runner) serveHTTP(on *sockets, admin http.Handler) (servers web) {
	start := func(l net.Listener, h http.Handler, note func(net.Conn, http.ConnState)) {
		s := &http.Server{Handler: h, ConnContext: withPeer, ConnState: note, ReadHeaderTimeout: headerLimit,
			ReadTimeout: readLimit, WriteTimeout: writeLimit, IdleTimeout: idleLimit, MaxHeaderBytes: 16 << 10,
			ErrorLog: slog.NewLogLogger(r.log.Handler(), slog.LevelDebug)}
		servers = append(servers, s)
		go func() {
			if err := s.Serve(l); !errors.Is(err, http.ErrServerClosed) {
				r.failed <- fmt.Errorf("serve HTTP on %s: %w", l.Addr(), err)
			}
		}()
	}
	if tcp := on.metrics; tcp != nil {
		r.log.Info("metrics", "url", fmt.Sprintf("http://%s/metrics", tcp.Addr()))
		mux, pages := http.NewServeMux(), observed
		r.observe(mux)
		if r.Config.MetricsProfiles {
			profile(mux)
			pages = slices.Concat(pages, profiles)
		}
		index(mux, pages...)
		c := newCrowd(maxMetrics)
		h := c.limit(mux)
		if !r.Config.MetricsPublic {
			h = local(h)
		}
		start(tcp, h, c.note)
	}
	mux := http.NewServeMux()
	r.observe(mux)
	profile(mux)
	index(mux, slices.Concat(observed, profiles, views)...)
	mux.HandleFunc("GET /v1/status", r.status)
	if admin != nil {
		mux.Handle("/v1/", admin)
	}
	start(newPeerListener(on.admin), authorize(mux), nil)
	return servers
}

// observe registers handlers that neither show nor change traffic.
func (r *runner) observe(mux *http.ServeMux) {
	mux.HandleFunc("GET /healthz", r.health)
	if r.Metrics != nil {
		mux.Handle("GET /metrics", r.unlessStalled(r.Metrics(r.daemon)))
	}
}

// profile registers what shows the insides of the daemon: on the admin socket, where it is known who asks, and with
// metrics.pprof on a loopback address, too.
func profile(mux *http.ServeMux) {
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
}

// authorize rejects requests that the user is not permitted to make.
func authorize(h http.Handler) http.Handler {
	own := uint32(os.Geteuid())
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		reads := req.Method == http.MethodGet && slices.Contains(open, req.URL.Path)
		if PeerOf(req.Context()) == nil || !reads && !Privileged(req.Context()) {
			refused := fmt.Sprintf("%s %s is for root and the daemon's own user (%d); you are another", req.Method,
				req.URL.Path, own)
			WriteJSON(w, http.StatusForbidden, map[string]string{"error": refused})
			return
		}
		h.ServeHTTP(w, req)
	})
}

func (r *runner) status(w http.ResponseWriter, _ *http.Request) {
	WriteJSON(w, http.StatusOK, r.daemon.Status())
}

// health says whether the daemon goes on.
func (r *runner) health(w http.ResponseWriter, req *http.Request) {
	if err := r.goesOn(req.Context()); err != nil {
		WriteJSON(w, http.StatusServiceUnavailable, map[string]string{"status": "stalled", "error": err.Error()})
		return
	}
	WriteJSON(w, http.StatusOK, map[string]string{"status": "ok"})
}

// unlessStalled serves h, which waits for all shards, only if the daemon goes on: no request waits for a shard that
// hangs.
func (r *runner) unlessStalled(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if err := r.goesOn(req.Context()); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		h.ServeHTTP(w, req)
	})
}

// goesOn asks whether the daemon answers and goes on, as the watchdog does. Only one request at a time does so, so that
// requests do not pile up if the daemon hangs.
func (r *runner) goesOn(ctx context.Context) (err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, healthLimit, errSilent)
	defer cancel()
	done := make(chan error, 1)
	select {
	case r.asking <- struct{}{}:
		go func() {
			err := r.check(ctx)
			<-r.asking
			done <- err
		}()
	case <-ctx.Done():
	}
	select {
	case err = <-done:
	case <-ctx.Done():
		select {
		case err = <-done: // it says more
		case <-time.After(lastWord):
			err = context.Cause(ctx)
		}
	}
	return err
}

// lastWord is how long a daemon whose time is over may take to say which part of it hangs.
const lastWord = 100 * time.Millisecond

var errSilent = fmt.Errorf("no answer within %v", healthLimit)

// WriteJSON answers a request with v. An error is not reported, as it means that the client has disconnected.
func WriteJSON(w http.ResponseWriter, code int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(v)
}

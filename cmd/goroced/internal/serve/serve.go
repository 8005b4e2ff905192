// Package serve runs the daemon: its sockets, signals, messages to the service manager, and HTTP. What it does for its
// clients is a [Daemon], which the caller provides.
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
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/goroce/goroce/cmd/goroced/internal/config"
	"github.com/goroce/goroce/internal/socket"
)

// Daemon serves clients.
type Daemon interface {
	// Serve accepts clients from l until ctx ends. Then it disconnects those that are left, frees everything and
	// returns nil. It returns earlier only with an error. It closes l.
	Serve(ctx context.Context, l *net.UnixListener) error

	// Reload applies the settings that can change in a running daemon, all or none.
	Reload(c *config.Config) error

	// Drain stops accepting clients and waits until all have disconnected. It fails if ctx ends before. Serve continues
	// meanwhile.
	Drain(ctx context.Context) error

	// AwaitIdle waits until there has been no client for as long as limit, or ctx ends. Then it admits no client any
	// more.
	AwaitIdle(ctx context.Context, limit time.Duration) error

	// Status returns the contents of /v1/status, soon.
	Status() any

	// Alive waits until all parts of the daemon that serve clients have shown that they go on. If ctx ends before, the
	// error says which have not.
	Alive(ctx context.Context) error
}

// Options configure Run.
type Options struct {
	Config *config.Config
	Load   func() (*config.Config, error) // loads the configuration again, for SIGHUP
	Log    io.Writer                      // where the log is written

	// Open opens the daemon, whose clients come by the sockets at, which are there already. admin serves the paths
	// under /v1/ except /v1/status; it checks permissions by [Peer]. drop closes the daemon after Serve has returned.
	Open func(c *config.Config, at socket.Paths, log *slog.Logger) (d Daemon, admin http.Handler, drop func() error,
		err error)

	// Metrics returns the handler of /metrics; nil if there is none.
	Metrics func(d Daemon) http.Handler
}

// Run runs the daemon until ctx ends. Then it drains the daemon; a SIGTERM or SIGINT in the meantime ends that at once.
// SIGHUP reloads the configuration. Run returns nil after an orderly end.
func Run(ctx context.Context, o Options) (err error) {
	hangup := make(chan os.Signal, 1) // before anybody can know that the daemon runs
	signal.Notify(hangup, syscall.SIGHUP)
	defer signal.Stop(hangup)
	level := new(slog.LevelVar)
	level.Set(o.Config.LogLevel)
	log := logger(o.Log, o.Config.LogFormat, level)
	sockets, err := listen(o.Config, log)
	if err != nil {
		return err
	}
	defer sockets.close()
	d, admin, drop, err := o.Open(o.Config, socket.Paths{Client: sockets.client.Addr().String(),
		Admin: sockets.admin.Addr().String()}, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, drop()) }()
	r := &runner{Options: o, log: log, level: level, patience: o.Config.Drain, daemon: d, failed: make(chan error, 3),
		asking: make(chan struct{}, 1), checking: make(chan struct{}, 1)}
	defer r.serveHTTP(sockets, admin).close()
	serving, stop := context.WithCancel(context.WithoutCancel(ctx))
	served := make(chan error, 1)
	defer func() { stop(); err = errors.Join(err, <-served) }()
	go func() {
		err := d.Serve(serving, sockets.client)
		if serving.Err() == nil {
			r.failed <- fmt.Errorf("serve clients: %w", errors.Join(errEnded, err))
			err = nil
		}
		served <- err
	}()
	return r.loop(ctx, hangup)
}

// errEnded is the error of a part of the daemon that ends without being told to.
var errEnded = errors.New("it ended by itself")

type runner struct {
	Options
	log      *slog.Logger
	level    *slog.LevelVar
	patience time.Duration // how long clients may take to leave at the end
	daemon   Daemon
	failed   chan error    // gets errors that end the daemon; buffered for all that can occur
	asking   chan struct{} // full while /healthz waits for the daemon
	checking chan struct{} // full while the watchdog does
}

// loop handles signals and notifies the service manager until the end.
func (r *runner) loop(ctx context.Context, hangup <-chan os.Signal) error {
	alive := newWatchdog(r.log)
	defer alive.stop()
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	c := r.Config
	idle, forget := r.idle(ctx)
	defer forget()
	r.log.Info("ready", "socket", c.Socket, "admin", c.Admin, "devices", len(c.Devices))
	notify(r.log, "READY=1")
	for {
		select {
		case <-ctx.Done():
			return r.drain(life, alive)
		case <-idle:
			r.log.Info("no client is left", "since", c.IdleExit)
			return r.drain(life, alive)
		case err := <-r.failed:
			notify(r.log, "STOPPING=1")
			return err
		case <-hangup:
			r.reload()
		case <-alive.tick():
			r.alive(life)
		}
	}
}

// idle returns a channel that is closed when the daemon has had no client for as long as it is configured to wait, and
// what ends the wait.
func (r *runner) idle(ctx context.Context) (<-chan struct{}, func()) {
	if r.Config.IdleExit == 0 {
		return nil, func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	idle := make(chan struct{})
	go func() {
		if r.daemon.AwaitIdle(ctx, r.Config.IdleExit) == nil {
			close(idle)
		}
	}()
	return idle, cancel
}

// alive notifies the service manager as soon as the daemon has shown that it goes on. It does not wait for that: if the
// daemon stalls for longer than the service manager's interval, it is restarted.
func (r *runner) alive(ctx context.Context) {
	select {
	case r.checking <- struct{}{}:
	default:
		r.log.Warn("the daemon stalls, and the service manager hears nothing")
		return
	}
	go func() {
		defer func() { <-r.checking }()
		if r.check(ctx) == nil {
			notify(r.log, "WATCHDOG=1")
		}
	}()
}

// check returns nil once the daemon has answered, and shown that it goes on.
func (r *runner) check(ctx context.Context) error {
	r.daemon.Status()
	return r.daemon.Alive(ctx)
}

// reload loads the configuration again and applies it. An invalid one has no effect.
func (r *runner) reload() {
	notify(r.log, reloading())
	defer notify(r.log, "READY=1")
	c, err := r.Load()
	if err == nil {
		err = r.daemon.Reload(c)
	}
	if err != nil {
		r.log.Error("reload refused, the configuration stays as it was", "error", oneLine(err))
		return
	}
	// The comparison is with the configuration that the daemon was started with.
	if keys := c.Restart(r.Config); len(keys) > 0 {
		r.log.Warn("these settings change with a restart only", "keys", strings.Join(keys, " "))
	}
	r.level.Set(c.LogLevel)
	r.patience = c.Drain
	r.log.Info("reloaded")
}

// drain gives clients time to leave and then ends the daemon.
func (r *runner) drain(life context.Context, alive watchdog) error {
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	r.log.Info("draining", "limit", r.patience)
	notify(r.log, fmt.Sprintf("STOPPING=1\nEXTEND_TIMEOUT_USEC=%d", (r.patience+5*time.Second).Microseconds()))
	ctx, expire := context.WithTimeout(ctx, r.patience)
	defer expire()
	drained := make(chan error, 1)
	go func() { drained <- r.daemon.Drain(ctx) }()
	for {
		select {
		case err := <-drained:
			if err != nil {
				r.log.Warn("clients are dropped", "reason", oneLine(err))
			}
			r.log.Info("stopped")
			return nil
		case err := <-r.failed:
			return err
		case <-alive.tick():
			r.alive(life)
		}
	}
}

// logger returns a logger for a format.
func logger(w io.Writer, format string, level slog.Leveler) *slog.Logger {
	o := &slog.HandlerOptions{Level: level, ReplaceAttr: readable}
	if format == "json" {
		return slog.New(slog.NewJSONHandler(w, o))
	}
	return slog.New(slog.NewTextHandler(w, o))
}

// readable writes durations as in the configuration, "1.5s"; JSON would have nanoseconds.
func readable(_ []string, a slog.Attr) slog.Attr {
	if a.Value.Kind() == slog.KindDuration {
		a.Value = slog.StringValue(a.Value.Duration().String())
	}
	return a
}

// oneLine formats joined errors on one line.
func oneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }

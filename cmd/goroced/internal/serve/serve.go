// Package serve runs the daemon: its sockets, its signals, what it tells the service
// manager, and the HTTP by which it is looked at. What the daemon does for its clients
// is a [Daemon], which is made elsewhere.
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
)

// Daemon serves clients.
type Daemon interface {
	// Serve takes clients from l until ctx ends, then drops those it has, gives
	// everything back and returns nil. It returns sooner only with an error. It closes l.
	Serve(ctx context.Context, l *net.UnixListener) error

	// Reload takes those settings of a configuration that can change in a running
	// daemon, all or none.
	Reload(c *config.Config) error

	// Drain takes no more clients from now on and waits until all have left. It fails
	// when ctx ends before. Serve goes on meanwhile.
	Drain(ctx context.Context) error

	// Status is what /v1/status shows, as JSON. Calling it is also how the daemon's
	// health is judged: it must return soon.
	Status() any
}

// Options say what to run.
type Options struct {
	Config *config.Config
	Load   func() (*config.Config, error) // reads the configuration again, for SIGHUP
	Log    io.Writer                      // takes the log

	// Open makes the daemon. The handler serves what is under /v1/ except /v1/status,
	// for who may: see [Peer]. Drop undoes it, after Serve has returned.
	Open func(c *config.Config, log *slog.Logger) (d Daemon, admin http.Handler, drop func() error, err error)

	// Metrics makes what serves /metrics; nil if nothing does.
	Metrics func(d Daemon) http.Handler
}

// Run runs the daemon until ctx ends, which drains it; a SIGTERM or SIGINT in the
// meantime cuts that short. SIGHUP reloads the configuration. It returns nil after an
// orderly end.
func Run(ctx context.Context, o Options) (err error) {
	hangup := make(chan os.Signal, 1) // before anybody is told that the daemon runs
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
	d, admin, drop, err := o.Open(o.Config, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, drop()) }()
	r := &runner{Options: o, log: log, level: level, patience: o.Config.Drain, daemon: d, failed: make(chan error, 3),
		asking: make(chan struct{}, 1)}
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

// errEnded is part of the error if something ends that should not.
var errEnded = errors.New("it ended by itself")

type runner struct {
	Options
	log      *slog.Logger
	level    *slog.LevelVar
	patience time.Duration // with clients, at the end
	daemon   Daemon
	failed   chan error    // takes what ends the daemon; has room for each that can fail
	asking   chan struct{} // full while /healthz waits for the daemon
}

// loop answers signals and tells the service manager, until the end.
func (r *runner) loop(ctx context.Context, hangup <-chan os.Signal) error {
	alive := newWatchdog(r.log)
	defer alive.stop()
	c := r.Config
	r.log.Info("ready", "socket", c.Socket, "admin", c.Admin, "devices", len(c.Devices))
	notify(r.log, "READY=1")
	for {
		select {
		case <-ctx.Done():
			return r.drain(alive)
		case err := <-r.failed:
			notify(r.log, "STOPPING=1")
			return err
		case <-hangup:
			r.reload()
		case <-alive.tick():
			r.alive()
		}
	}
}

// alive tells the service manager that the daemon answers.
func (r *runner) alive() {
	r.daemon.Status()
	notify(r.log, "WATCHDOG=1")
}

// reload reads the configuration again and takes what can change. A bad one changes
// nothing.
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
	// What needs a restart is measured against what the daemon was started with.
	if keys := c.Restart(r.Config); len(keys) > 0 {
		r.log.Warn("these settings change with a restart only", "keys", strings.Join(keys, " "))
	}
	r.level.Set(c.LogLevel)
	r.patience = c.Drain
	r.log.Info("reloaded")
}

// drain ends the daemon, with time for its clients to leave.
func (r *runner) drain(alive watchdog) error {
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
			r.alive()
		}
	}
}

// logger writes a log in that format.
func logger(w io.Writer, format string, level slog.Leveler) *slog.Logger {
	o := &slog.HandlerOptions{Level: level}
	if format == "json" {
		return slog.New(slog.NewJSONHandler(w, o))
	}
	return slog.New(slog.NewTextHandler(w, o))
}

// oneLine writes an error that joins several in one line.
func oneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }

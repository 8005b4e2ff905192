//go:build linux

package main

import (
	"context"
	"errors"
	"io/fs"
	"net/http"
	"os"
	"syscall"
	"time"

	"github.com/alecthomas/kong"

	"github.com/goroce/goroce/cmd/goroced/internal/config"
	runner "github.com/goroce/goroce/cmd/goroced/internal/serve"
)

// serveCmd is `goroced serve`.
type serveCmd struct {
	Replace bool `help:"End the daemon that has the admin socket, and take its place. Its clients have the time of its setting drain to leave." group:"Settings"`
	settingFlags
}

// Help is printed under the flags.
func (*serveCmd) Help() string {
	return "Needs no configuration and, over the udp link, no privilege. Flags override the environment " +
		"(GOROCED_SOCKET, GOROCED_LIMITS_USER_QPS ...), which overrides the file. SIGHUP reads the configuration " +
		"again, SIGTERM lets clients leave and ends the daemon. `goroced config show` prints what it would run with."
}

// Run runs the subcommand.
func (c *serveCmd) Run(a *app, parsed *kong.Context) error {
	load := func() (*config.Config, error) { return c.load(parsed) }
	loaded, err := load()
	if err != nil {
		return err
	}
	if c.Replace {
		if err := replace(a.ctx, loaded); err != nil {
			return err
		}
	}
	return runner.Run(a.ctx, runner.Options{Config: loaded, Load: load, Log: os.Stderr, Open: openDaemon,
		Metrics: func(d runner.Daemon) http.Handler { return metricsHandler(d.(figures)) }})
}

// replace ends the daemon that has the admin socket of a configuration, if there is one.
func replace(ctx context.Context, c *config.Config) error {
	_, err := stopDaemon(ctx, c.Admin, c.Drain+replaceLimit)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED) {
		return nil // none runs
	}
	return err
}

// replaceLimit is how long the other daemon may take beyond its drain, which is assumed to be as ours.
const replaceLimit = 30 * time.Second

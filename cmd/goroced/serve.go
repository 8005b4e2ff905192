//go:build linux

package main

import (
	"net/http"
	"os"

	"github.com/alecthomas/kong"

	"github.com/goroce/goroce/cmd/goroced/internal/config"
	runner "github.com/goroce/goroce/cmd/goroced/internal/serve"
)

// serveCmd is `goroced serve`.
type serveCmd struct{ settingFlags }

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
	return runner.Run(a.ctx, runner.Options{Config: loaded, Load: load, Log: os.Stderr, Open: openDaemon,
		Metrics: func(d runner.Daemon) http.Handler { return metricsHandler(d.(figures)) }})
}

package main

import (
	"net/http"

	runner "github.com/goroce/goroce/roce/tools/serve"
)

// serveCmd is `goroced serve`.
type serveCmd struct{ settingFlags }

// Help is printed under the flags.
func (*serveCmd) Help() string {
	return "Needs no configuration and, over the udp link, no privilege. Flags are stronger than the environment " +
		"(GOROCED_SOCKET, GOROCED_LIMITS_USER_QPS ...), that than the file. SIGHUP reads the configuration again, " +
		"SIGTERM lets clients leave and ends the daemon. `goroced config show` prints what it would run with."
}

// Run runs the subcommand.
func (c *serveCmd) Run(a *app) error {
	loaded, err := c.load()
	if err != nil {
		return err
	}
	return runner.Run(a.ctx, runner.Options{Config: loaded, Load: c.load, Log: a.err, Open: openDaemon,
		Metrics: func(d runner.Daemon) http.Handler { return metricsHandler(d.(figures)) }})
}

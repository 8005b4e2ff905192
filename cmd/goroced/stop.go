//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	runner "github.com/goroce/goroce/cmd/goroced/internal/serve"
	"github.com/goroce/goroce/internal/socket"
)

// stopCmd is `goroced stop`.
type stopCmd struct {
	Socket  string        `name:"admin" placeholder:"PATH" type:"path" help:"Admin socket of the daemon (default: $$GOROCED_ADMIN, then the usual places)."`
	Timeout time.Duration `default:"1m" help:"Longest wait for its end (default ${default}). Its clients have the time of its setting drain to leave."`
}

// Run runs the subcommand.
func (c *stopCmd) Run(a *app) error {
	pid, err := stopDaemon(a.ctx, c.Socket, c.Timeout)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(a.out, "the daemon has ended, process %d\n", pid)
	return err
}

// stopDaemon ends a daemon, and returns its process.
func stopDaemon(ctx context.Context, path string, limit time.Duration) (pid int, err error) {
	conn, err := socket.Dial(socket.Admin, path)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	peer, err := runner.Stop(ctx, conn)
	if err != nil {
		return 0, err
	}
	return peer.PID, nil
}

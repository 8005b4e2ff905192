package main

import (
	"context"
	"net"

	"github.com/goroce/goroce/roce/tools/config"
)

// noClients closes the connections of clients at once. Devices without clients answer
// the machine's peers, and can be looked at.
type noClients struct{}

// Serve closes what connects to l.
func (noClients) Serve(ctx context.Context, l *net.UnixListener) error {
	stop := context.AfterFunc(ctx, func() { _ = l.Close() })
	defer stop()
	for {
		conn, err := l.AcceptUnix()
		if err != nil && ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		_ = conn.Close()
	}
}

// Reload has nothing to change.
func (noClients) Reload(*config.Config) error { return nil }

// Drain has nobody to wait for.
func (noClients) Drain(context.Context) error { return nil }

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/goroce/goroce/internal/socket"
)

// answerLimit is how long a healthy daemon may take to answer.
const answerLimit = 5 * time.Second

// prober finds out whether the daemon answers its clients. It is a client itself, and keeps its connection: each new
// one would be a line of the daemon's log.
type prober struct {
	socket string
	limit  time.Duration // for an answer
	shares *shares
	log    *slog.Logger

	conn *net.UnixConn // nil: not connected
	last string        // why it was not healthy, "" if it was
}

// look asks the daemon once.
func (p *prober) look(ctx context.Context) {
	err := p.ask(ctx)
	if ctx.Err() != nil {
		return
	}
	p.shares.set(err == nil)
	reason := ""
	if err != nil {
		reason = err.Error()
	}
	switch {
	case reason == p.last:
	case err == nil:
		p.log.Info("the daemon answers: shares are healthy", "socket", p.socket)
	default:
		p.log.Warn("the daemon does not answer: shares are unhealthy", "err", err)
	}
	p.last = reason
}

// ask greets the daemon, which may be done as often as one likes on a connection.
func (p *prober) ask(ctx context.Context) (err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, p.limit, fmt.Errorf("not within %v", p.limit))
	defer cancel()
	for range 2 { // a connection from before may be that of a daemon that has ended
		kept := p.conn != nil
		if !kept {
			if p.conn, err = socket.DialAny(ctx, socket.Client, []string{p.socket}); err != nil {
				return err
			}
		}
		if _, err = socket.Greet(ctx, p.conn); err == nil {
			return nil
		}
		err = errors.Join(err, p.close())
		if !kept || ctx.Err() != nil {
			return err
		}
	}
	return err
}

func (p *prober) close() error {
	if p.conn == nil {
		return nil
	}
	err := p.conn.Close()
	p.conn = nil
	return err
}

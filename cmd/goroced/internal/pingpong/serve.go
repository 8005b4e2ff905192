package pingpong

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/goroce/goroce/cmd/goroced/internal/meet"
	"github.com/goroce/goroce/ib"
)

// Serve takes goroce clients in turn until ctx ends, which is no error. Service, Size, MTU, NumQP, Iters and Check are
// those of each client, as far as limits allow them; o has the other options, which are this end's own.
func Serve(ctx context.Context, dev ib.Device, o Options, limits meet.Limits) error {
	if o.Log == nil {
		o.Log = io.Discard
	}
	if err := o.check(dev); err != nil {
		return err
	}
	return meet.Serve(ctx, meet.ServeOptions{Port: o.Port, Greet: o.Timeout, Network: o.network, Log: o.Log,
		Listening: func() {
			fmt.Fprintln(o.Log, o.Here.Waiting("goroced pingpong", o.Port, Defaults(RC).Port))
		},
		Play: func(ctx context.Context, c *meet.Client) error {
			own := o
			if err := own.receive(ctx, dev, c, &limits); err != nil {
				return err
			}
			return own.entertain(ctx, dev, c)
		}})
}

// receive takes the options of a client, and waits for its turn.
func (o *Options) receive(ctx context.Context, dev ib.Device, c *meet.Client, limits *meet.Limits) error {
	talks, err := welcome(c.Conn, o, meet.ServerTerms(limits), func(theirs *meet.Terms) error {
		if err := o.take(theirs, dev, limits); err != nil {
			return err
		}
		return c.Turn(ctx, limits.Time+2*o.Timeout)
	})
	if err == nil && !talks {
		return fmt.Errorf("%w: the client does not tell its options; for rdma-core's tools run `goroced pingpong`",
			ErrExchange)
	}
	return err
}

// entertain plays with a client whose options this end has.
func (o *Options) entertain(ctx context.Context, dev ib.Device, c *meet.Client) (err error) {
	fmt.Fprintf(o.Out, "client %v: %s\n", c.RemoteAddr(), o.commandLine(" HOST"))
	e, err := newEndpoint(dev, o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, e.Close()) }()
	gid, err := indexedGID(e.gids, o.GIDIndex)
	if err != nil {
		return err
	}
	if gid == nil {
		gid = meet.GID(e.gids, c.LocalIP())
	}
	o.say(e.local, gid)
	_, err = e.run(ctx, c.Conn, gid, func() {})
	return err
}

package pingpong

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/goroce/goroce/cmd/goroced/internal/meet"
	"github.com/goroce/goroce/cmd/goroced/internal/waiting"
	"github.com/goroce/goroce/ib"
)

// Result is the result of a run.
type Result struct {
	Bytes   int64 // in both directions
	Iters   int
	Elapsed time.Duration
}

// Run runs one end on dev and prints what the C tool prints.
func Run(ctx context.Context, dev ib.Device, o Options) (res Result, err error) {
	if o.Log == nil {
		o.Log = io.Discard
	}
	if err := o.check(dev); err != nil {
		return res, err
	}
	table, err := dev.GIDs(o.IBPort)
	if err != nil {
		return res, err
	}
	e, err := newEndpoint(dev, &o)
	if err != nil {
		return res, err
	}
	defer func() { err = errors.Join(err, e.close()) }()
	e.gids = table
	return e.run(ctx)
}

// run connects to the peer, plays and prints the result.
func (e *endpoint) run(ctx context.Context) (res Result, err error) {
	o := e.o
	gid, err := indexedGID(e.gids, o.GIDIndex)
	if err != nil {
		return res, err
	}
	local := e.addresses()
	if gid != nil {
		say(o.Out, local, gid)
	}
	conn, err := o.meet(ctx)
	if err != nil {
		return res, err
	}
	defer conn.Close()
	if gid == nil {
		gid = meet.GID(e.gids, conn.LocalIP())
		say(o.Out, local, gid)
	}
	ready := func(remote []address) error { return e.connect(local, remote, gid.Index) }
	stop := waiting.For(o.Log, "", "the address of the peer at %v, over TCP, %v at most", conn.RemoteAddr(), o.Timeout)
	remote, err := exchange(conn, o, local, ready)
	stop()
	if ctx.Err() != nil {
		return res, ctx.Err()
	}
	if err != nil {
		return res, err
	}
	for i := range remote {
		fmt.Fprintf(o.Out, "  remote address: %v\n", &remote[i])
	}
	if o.Host != "" {
		if err := ready(remote); err != nil {
			return res, err
		}
	}
	start := time.Now()
	if err := e.play(ctx, remote); err != nil {
		return res, err
	}
	res = Result{Bytes: 2 * int64(o.Size) * int64(o.Iters), Iters: o.Iters, Elapsed: time.Since(start)}
	res.print(o.Out)
	farewell(conn, o)
	return res, nil
}

// say sets the GID of the addresses and prints them.
func say(w io.Writer, local []address, gid *ib.GIDEntry) {
	for i := range local {
		local[i].gid = gid.GID
		fmt.Fprintf(w, "  local address:  %v\n", &local[i])
	}
}

// meet returns a TCP connection to the peer, which is closed when ctx ends.
func (o *Options) meet(ctx context.Context) (*meet.Conn, error) {
	command := o.Service.traits().command
	if o.Host != "" {
		defer waiting.For(o.Log, o.Host, "%s to accept the TCP connection to port %d, %v at most", o.Host, o.Port,
			o.Timeout)()
	}
	return meet.Connect(ctx, meet.Options{Host: o.Host, Port: o.Port, Timeout: o.Timeout, Command: command,
		Listening: func() {
			fmt.Fprintf(o.Log, "waiting for a client on TCP port %d: %s%s\n", o.Port, command(" HOST"),
				o.Here.Client(fmt.Sprintf("goroced pingpong --service %v -p %d %%s %%v", o.Service, o.Port)))
		}})
}

// print prints the result as the C tool does.
func (r *Result) print(w io.Writer) {
	us := float64(r.Elapsed.Nanoseconds()) / 1e3
	fmt.Fprintf(w, "%d bytes in %.2f seconds = %.2f Mbit/sec\n", r.Bytes, us/1e6, float64(r.Bytes)*8/us)
	fmt.Fprintf(w, "%d iters in %.2f seconds = %.2f usec/iter\n", r.Iters, us/1e6, us/float64(r.Iters))
}

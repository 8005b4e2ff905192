package pingpong

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
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
//
// Errors: ib.AttrError for invalid options, before the peer is contacted; ErrExchange; meet.ErrMismatch,
// meet.ErrRefused and meet.ErrVersion; ErrSilent; ErrData; ib.WCError for a failed request.
func Run(ctx context.Context, dev ib.Device, o Options) (res Result, err error) {
	if o.Log == nil {
		o.Log = io.Discard
	}
	if err := o.check(dev); err != nil {
		return res, err
	}
	e, err := newEndpoint(dev, &o)
	if err != nil {
		return res, err
	}
	defer func() { err = errors.Join(err, e.Close()) }()
	gid, err := indexedGID(e.gids, o.GIDIndex)
	if err != nil {
		return res, err
	}
	if gid != nil {
		o.say(e.local, gid)
	}
	conn, err := o.meet(ctx)
	if err != nil {
		return res, err
	}
	defer conn.Close()
	if gid == nil {
		gid = meet.GID(e.gids, conn.LocalIP())
		o.say(e.local, gid)
	}
	stop := waiting.For(o.Log, "", "the address of the peer at %v, over TCP, %v at most", conn.RemoteAddr(), o.Timeout)
	defer stop()
	maxTime, err := e.introduce(conn)
	switch {
	case ctx.Err() != nil:
		return res, ctx.Err()
	case err != nil:
		return res, err
	}
	start := time.Now()
	res, err = e.run(ctx, conn, gid, stop)
	if err != nil && maxTime > 0 && time.Since(start) > maxTime {
		err = fmt.Errorf("%w; the server ends a test after %v (--max-time there)", err, maxTime)
	}
	return res, err
}

// run exchanges addresses with the peer, plays and prints the result. It calls told when it has the peer's address.
func (e *endpoint) run(ctx context.Context, conn *meet.Conn, gid *ib.GIDEntry, told func()) (res Result, err error) {
	o, local := e.o, e.local
	ready := func(remote []address) error { return e.connect(local, remote, gid.Index) }
	remote, err := exchange(conn, o, local, ready)
	told()
	if ctx.Err() != nil {
		return res, ctx.Err()
	}
	if err != nil {
		return res, err
	}
	for i := range remote {
		o.printAddress("remote address: ", &remote[i])
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
func (o *Options) say(local []address, gid *ib.GIDEntry) {
	for i := range local {
		local[i].gid = gid.GID
		o.printAddress("local address:  ", &local[i])
	}
}

// printAddress prints an address. On a terminal that is too narrow the GID has a line of its own.
func (o *Options) printAddress(what string, a *address) {
	line := fmt.Sprintf("  %s%v", what, a)
	if o.Columns > 0 && len(line) > o.Columns {
		line = strings.Replace(line, " GID ", "\n"+strings.Repeat(" ", 2+len(what))+"GID ", 1)
	}
	fmt.Fprintln(o.Out, line)
}

// meet returns a TCP connection to the peer, which is closed when ctx ends.
func (o *Options) meet(ctx context.Context) (*meet.Conn, error) {
	command := o.Service.traits().command
	peer := fmt.Sprintf("a client on TCP port %d", o.Port)
	if o.Host != "" {
		peer = fmt.Sprintf("%s to accept the TCP connection to port %d", o.Host, o.Port)
		defer waiting.For(o.Log, o.Host, "%s, %v at most", peer, o.Timeout)()
	}
	conn, err := meet.Connect(ctx, meet.Options{Host: o.Host, Port: o.Port, Timeout: o.Timeout, Command: command,
		Network: o.network, Listening: func() {
			fmt.Fprintf(o.Log, "waiting for %s: %s%s\n", peer, command(o.Both+" HOST"),
				o.Here.Client(fmt.Sprintf("goroced pingpong --service %v%s -p %d %%s %%v", o.Service, o.Both, o.Port)))
		}})
	return conn, waiting.Ended(ctx, err, "%s", peer)
}

// print prints the result as the C tool does.
func (r *Result) print(w io.Writer) {
	us := float64(r.Elapsed.Nanoseconds()) / 1e3
	fmt.Fprintf(w, "%d bytes in %.2f seconds = %.2f Mbit/sec\n", r.Bytes, us/1e6, float64(r.Bytes)*8/us)
	fmt.Fprintf(w, "%d iters in %.2f seconds = %.2f usec/iter\n", r.Iters, us/1e6, us/float64(r.Iters))
}

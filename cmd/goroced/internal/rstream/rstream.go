package rstream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"time"

	"github.com/goroce/goroce/cmd/goroced/internal/pathmtu"
	"github.com/goroce/goroce/cmd/goroced/internal/waiting"
	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/rdmacm"
	"github.com/goroce/goroce/roce/rsocket"
)

// player is one end of the program, with the state that it keeps between tests.
type player struct {
	o    *Options
	cm   *rdmacm.CM
	l    *rsocket.Listener // nil at the client
	mem  *memory
	data pattern

	running *test     // the test whose transfers are under way; nil between tests
	start   time.Time // of running
	moved   int64     // transfers of running that have been made, in both directions
}

// Run runs one end on dev and prints what the C tool prints. Both ends return when all tests are done.
func Run(ctx context.Context, dev ib.Device, o Options) (err error) {
	if o.Log == nil {
		o.Log = io.Discard
	}
	if err := o.check(); err != nil {
		return err
	}
	if err := pathmtu.Check("rstream", dev, o.MTU); err != nil {
		return err
	}
	cm, err := rdmacm.Open(dev, rdmacm.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, cm.Close()) }()
	connections := o.connections()
	p := &player{o: &o, cm: cm, mem: newMemory(largest(connections))}
	if o.Server == "" {
		if err := p.listen(ctx); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, p.l.Close()) }()
	}
	printHeader(o.Out)
	for i, tests := range connections {
		if err := p.connection(ctx, i, tests); err != nil {
			return err
		}
	}
	return nil
}

func (p *player) listen(ctx context.Context) (err error) {
	if p.l, err = rsocket.Listen(ctx, p.cm, p.o.hostPort(p.o.Bind), p.o.socket()); err != nil {
		return fmt.Errorf("wait for a client: %w; -b takes an address of the device, -p a port that is free", err)
	}
	addr := p.l.Addr().(rsocket.Addr)
	goroce, c := "goroced rstream", "rstream"
	if p.o.IOMap {
		goroce, c = "goroced rstream --iomap", "riostream"
	}
	fmt.Fprintf(p.o.Log, "waiting for a client on %v: `%s -s ADDR -p %d`, or `%s -s ADDR -p %[3]d`%[5]s; with the "+
		"same test options as here\n",
		addr, goroce, addr.Port(), c, p.o.Here.Client(fmt.Sprintf("%s -p %d %%s -s %%v", goroce, addr.Port())))
	return nil
}

// socket returns the options of the connections.
func (o *Options) socket() rsocket.Options {
	s := rsocket.Options{SendBuffer: o.Buffer, ReceiveBuffer: o.Buffer, Inline: o.Inline, KeepAlive: o.KeepAlive,
		AckTimeout: o.AckTimeout, PathMTU: o.MTU}
	if o.IOMap {
		s.MapSlots = 1
	}
	if bind, err := netip.ParseAddr(o.Bind); err == nil && o.Server != "" {
		s.Local = netip.AddrPortFrom(bind, 0)
	}
	return s
}

// connection makes a connection and runs its tests.
func (p *player) connection(ctx context.Context, i int, tests []test) error {
	conn, err := p.connect(ctx, i)
	if err != nil {
		return err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	if p.o.KeepAlive > 0 {
		fmt.Fprintf(p.o.Out, "Keepalive: ON\n  time: %d\n", int(p.o.KeepAlive.Seconds()))
	}
	err = p.play(conn, tests)
	if ctx.Err() != nil {
		p.printPart()
		return ctx.Err()
	}
	return err
}

// connect makes connection i. A server waits for the first connection without limit, for the others as long as Timeout.
func (p *player) connect(ctx context.Context, i int) (*rsocket.Conn, error) {
	wait, cancel := context.WithTimeout(ctx, p.o.Timeout)
	defer cancel()
	if p.l == nil {
		server := p.o.hostPort(p.o.Server)
		stop := waiting.For(p.o.Log, p.o.Server, "%s to answer the request (REQ, UDP port 4791), %v at most", server,
			p.o.Timeout)
		conn, err := rsocket.Dial(wait, p.cm, server, p.o.socket())
		stop()
		if err != nil {
			err = p.o.explainDial(err)
		}
		return conn, waiting.Ended(ctx, err, "%s to answer the request", server)
	}
	if i == 0 {
		conn, err := p.l.AcceptConn(ctx)
		return conn, waiting.Ended(ctx, err, "a client on %v", p.l.Addr())
	}
	conn, err := p.l.AcceptConn(wait)
	if err != nil {
		err = fmt.Errorf("wait for connection %d of the client: %w; both ends need the same tests", i+1, err)
	}
	return conn, waiting.Ended(ctx, err, "connection %d of the client on %v", i+1, p.l.Addr())
}

// explainDial adds advice to the error of a failed Dial.
func (o *Options) explainDial(err error) error {
	var reject *rdmacm.RejectError
	if errors.As(err, &reject) && reject.Reason == ib.RejectInvalidServiceID {
		return fmt.Errorf("connect to the server: %w; start it there first: "+
			"`goroced rstream -p %d`, or `rstream -p %[2]d`",
			err, o.Port)
	}
	return fmt.Errorf("connect to the server: %w", err)
}

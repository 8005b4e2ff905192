// Package meet makes the TCP connection over which the two ends of a measurement exchange the addresses of their queue
// pairs, before they send messages over RoCE. The server waits for one client ([Connect]), or takes clients in turn
// ([Serve]). The contents of the exchange are up to the caller: package pingpong uses the format of libibverbs' tools,
// package perf that of perftest. Two ends of goroced tell each other their options as well ([Agree]).
package meet

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strconv"
	"syscall"
	"time"
)

// ErrExchange: the exchange over TCP has failed.
var ErrExchange = errors.New("exchange with the peer failed")

// Options configure the connection.
type Options struct {
	Host    string        // host of the server; "" makes this end the server, on all addresses
	Port    int           // TCP port, 1 to 65535
	Timeout time.Duration // of the client to connect; a server waits for its client until ctx ends

	Listening func()                   // called at the server before it waits; may be nil
	Command   func(args string) string // command line of the other end, for errors

	Network Network // where the connection is made; the machine's if nil
}

// Network is a network for TCP connections.
type Network interface {
	DialContext(ctx context.Context, network, address string) (net.Conn, error)
	Listen(ctx context.Context, network, address string) (net.Listener, error)
}

// machine is the machine's network.
type machine struct {
	net.Dialer
	net.ListenConfig
}

// Conn is the connection to the peer. One goroutine may read and one may write at a time.
type Conn struct {
	net.Conn
	r      *bufio.Reader
	unhook func() bool // stops the closing of the connection by the end of ctx
}

// Connect returns the connection to the peer. It is closed when ctx ends, or by Close.
func Connect(ctx context.Context, o Options) (*Conn, error) {
	if o.Network == nil {
		o.Network = &machine{Dialer: net.Dialer{Timeout: o.Timeout}}
	}
	connect := dial
	if o.Host == "" {
		connect = accept
	}
	conn, err := connect(ctx, &o)
	if err != nil {
		return nil, err
	}
	return newConn(ctx, conn), nil
}

func newConn(ctx context.Context, conn net.Conn) *Conn {
	return &Conn{conn, bufio.NewReader(conn), context.AfterFunc(ctx, func() { conn.Close() })}
}

func dial(ctx context.Context, o *Options) (net.Conn, error) {
	conn, err := o.Network.DialContext(ctx, "tcp", net.JoinHostPort(o.Host, strconv.Itoa(o.Port)))
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return nil, fmt.Errorf("connect to the server: %w; start it there first: %s", err, o.Command(""))
	case errors.Is(err, syscall.EHOSTUNREACH):
		return nil, fmt.Errorf("connect to the server: %w; is the address right and the host up?", err)
	case err != nil:
		return nil, fmt.Errorf("connect to the server: %w", err)
	}
	return conn, nil
}

func listen(ctx context.Context, network Network, port int) (net.Listener, error) {
	l, err := network.Listen(ctx, "tcp", ":"+strconv.Itoa(port))
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, fmt.Errorf("wait for a client: %w; end the other server or choose a port with -p", err)
	case err != nil:
		return nil, fmt.Errorf("wait for a client: %w", err)
	}
	return l, nil
}

// accept waits for one client.
func accept(ctx context.Context, o *Options) (net.Conn, error) {
	l, err := listen(ctx, o.Network, o.Port)
	if err != nil {
		return nil, err
	}
	defer l.Close()
	defer context.AfterFunc(ctx, func() { l.Close() })()
	if o.Listening != nil {
		o.Listening()
	}
	conn, err := l.Accept()
	if ctx.Err() != nil {
		if err == nil {
			_ = conn.Close()
		}
		return nil, ctx.Err()
	}
	if err != nil {
		return nil, fmt.Errorf("wait for a client: %w", err)
	}
	return conn, nil
}

// Close closes the connection.
func (c *Conn) Close() error {
	c.unhook()
	return c.Conn.Close()
}

// Limit sets the time that all of the following calls together may take; 0 removes the limit.
func (c *Conn) Limit(d time.Duration) {
	deadline := time.Time{}
	if d > 0 {
		deadline = time.Now().Add(d)
	}
	_ = c.SetDeadline(deadline) // fails only if the connection is closed, and then the following calls fail, too
}

// Send sends a message.
func (c *Conn) Send(msg []byte) error {
	if _, err := c.Write(msg); err != nil {
		return fmt.Errorf("%w: %w", ErrExchange, err)
	}
	return nil
}

// Receive fills msg with bytes from the peer.
func (c *Conn) Receive(msg []byte) error {
	got, err := io.ReadFull(c.r, msg)
	if err != nil {
		return fmt.Errorf("%w: %d of %d bytes came from %v: %w", ErrExchange, got, len(msg), c.RemoteAddr(), err)
	}
	return nil
}

// Await waits until the peer has begun to send what Receive will return next (nil), has closed the connection, or the
// limit has passed.
func (c *Conn) Await() error {
	_, err := c.r.Peek(1)
	return err
}

// LocalIP returns this end's address, without a zone.
func (c *Conn) LocalIP() netip.Addr {
	ap, err := netip.ParseAddrPort(c.LocalAddr().String())
	if err != nil {
		return netip.Addr{}
	}
	return ap.Addr().Unmap().WithZone("")
}

// Peek returns the next n bytes from the peer, which Receive will return.
func (c *Conn) Peek(n int) ([]byte, error) { return c.r.Peek(n) }

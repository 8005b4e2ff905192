package perf

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"
)

// tcpMeeting is a TCP connection. A goroutine waits for the next byte while
// messages go over RoCE.
type tcpMeeting struct {
	net.Conn
	textAddresses
	r      *bufio.Reader
	client bool
	seen   atomic.Int32 // presence
	idle   chan struct{}
	unhook func() bool // from the context's end
}

// meetTCP connects to the server, or waits for the client. The connection ends with
// ctx.
func meetTCP(ctx context.Context, o *Options) (*tcpMeeting, error) {
	conn, err := connectTCP(ctx, o)
	if err != nil {
		return nil, err
	}
	m := &tcpMeeting{Conn: conn, r: bufio.NewReader(conn), client: !o.server()}
	m.watch()
	m.unhook = context.AfterFunc(ctx, func() { conn.Close() })
	return m, nil
}

func (m *tcpMeeting) Close() error {
	m.unhook()
	return m.Conn.Close()
}

func connectTCP(ctx context.Context, o *Options) (net.Conn, error) {
	if o.server() {
		return accept(ctx, o)
	}
	server := net.JoinHostPort(o.Host, strconv.Itoa(o.Port))
	d := net.Dialer{Timeout: o.Timeout}
	conn, err := d.DialContext(ctx, "tcp", server)
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return nil, fmt.Errorf("connect to the server: %w; start it there first: %s", err, o.command(""))
	case err != nil:
		return nil, fmt.Errorf("connect to the server: %w", err)
	}
	return conn, nil
}

// accept waits for one client.
func accept(ctx context.Context, o *Options) (net.Conn, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", ":"+strconv.Itoa(o.Port))
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, fmt.Errorf("wait for a client: %w; end the other server or choose a port with -p", err)
	case err != nil:
		return nil, fmt.Errorf("wait for a client: %w", err)
	}
	defer l.Close()
	defer context.AfterFunc(ctx, func() { l.Close() })()
	o.announce("TCP")
	conn, err := l.Accept()
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if err != nil {
		return nil, fmt.Errorf("wait for a client: %w", err)
	}
	return conn, nil
}

// watch waits for the next byte in the background.
func (m *tcpMeeting) watch() {
	m.seen.Store(int32(here))
	m.idle = make(chan struct{})
	go func() {
		defer close(m.idle)
		next := ahead
		if _, err := m.r.Peek(1); err != nil {
			next = gone
		}
		m.seen.Store(int32(next))
	}()
}

func (m *tcpMeeting) peer() presence { return presence(m.seen.Load()) }

func (m *tcpMeeting) swap(mine, theirs []byte, limit time.Duration) error {
	deadline := time.Time{}
	if limit > 0 {
		deadline = time.Now().Add(limit)
	}
	_ = m.SetDeadline(deadline)
	steps := []func() error{func() error { return m.send(mine) }, func() error { return m.receive(theirs) }}
	if !m.client {
		steps[0], steps[1] = steps[1], steps[0]
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	_ = m.SetDeadline(time.Time{})
	m.watch()
	return nil
}

func (m *tcpMeeting) send(msg []byte) error {
	if _, err := m.Write(msg); err != nil {
		return fmt.Errorf("%w: %w", ErrExchange, err)
	}
	return nil
}

func (m *tcpMeeting) receive(msg []byte) error {
	<-m.idle
	got, err := io.ReadFull(m.r, msg)
	if err != nil {
		return fmt.Errorf("%w: %d of %d bytes came from %v: %w", ErrExchange, got, len(msg), m.RemoteAddr(), err)
	}
	return nil
}

func (m *tcpMeeting) leave(limit time.Duration) {
	_ = m.SetDeadline(time.Now().Add(limit))
	<-m.idle
}

// localAddr returns this end's IP address, without a zone.
func (m *tcpMeeting) localAddr() netip.Addr {
	ap, err := netip.ParseAddrPort(m.LocalAddr().String())
	if err != nil {
		return netip.Addr{}
	}
	return ap.Addr().Unmap().WithZone("")
}

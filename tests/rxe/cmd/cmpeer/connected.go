package main

import (
	"errors"
	"fmt"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/rdmacm"
)

// ucmatose: the server sends first, and disconnects.
type ucmatose struct {
	common
	size
	Conns int    `short:"c" default:"1" help:"Connections."`
	Port  int    `short:"p" default:"7471" help:"Port."`
	Host  string `arg:"" optional:"" help:"The server."`
}

func (u *ucmatose) Run() error {
	return u.with(func(s *station) error {
		isServer := u.Host == ""
		return s.converse(u.Host, u.Port, u.Conns, u.size, func(t *talk) error {
			if err := t.exchange(isServer); err != nil {
				return err
			}
			if isServer {
				return t.conn.Disconnect(s)
			}
			select {
			case <-t.conn.Done():
				return wantDisconnected(t.conn)
			case <-s.Done():
				return fmt.Errorf("wait for the server to disconnect: %w", s.Err())
			}
		})
	})
}

// message is rdma_server and rdma_client: each end sends 16 bytes. Then both disconnect.
type message struct {
	common
	Port int    `short:"p" default:"7471" help:"Port."`
	Host string `arg:"" optional:"" help:"The server."`
}

func (m *message) Run() error {
	return m.with(func(s *station) error {
		return s.converse(m.Host, m.Port, 1, size{Count: 1, Size: 16}, func(t *talk) error {
			if err := t.exchange(m.Host != ""); err != nil {
				return err
			}
			return t.conn.Disconnect(s)
		})
	})
}

// talk is a connection and its messages.
type talk struct {
	*lane
	conn *rdmacm.Conn
}

// exchange sends all messages and receives as many; sendFirst gives the order.
func (t *talk) exchange(sendFirst bool) error {
	steps := []func() error{t.receive, t.send}
	if sendFirst {
		steps[0], steps[1] = steps[1], steps[0]
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// converse opens n connections to host, or accepts n if host is empty, and calls f for each
// once all are established.
func (s *station) converse(host string, port, n int, m size, f func(*talk) error) error {
	talks := make([]*talk, n)
	connect := s.dialer(host, port)
	if host == "" {
		l, err := s.listen(port, ib.RC)
		if err != nil {
			return err
		}
		defer l.Close()
		connect = s.acceptor(l)
	}
	err := each(n, func(i int) error {
		l, err := s.newLane(m, 0)
		if err != nil {
			return err
		}
		talks[i] = &talk{lane: l}
		talks[i].conn, err = connect(l.config())
		return err
	})
	if err == nil {
		fmt.Printf("%d connections\n", n)
		err = each(n, func(i int) error { return f(talks[i]) })
	}
	for _, t := range talks {
		err = errors.Join(err, t.close())
	}
	return err
}

// close closes the parts of t that were opened.
func (t *talk) close() error {
	if t == nil {
		return nil
	}
	var err error
	if t.conn != nil {
		err = t.conn.Close()
	}
	return errors.Join(err, t.lane.close())
}

func (s *station) dialer(host string, port int) func(rdmacm.Config) (*rdmacm.Conn, error) {
	return func(o rdmacm.Config) (*rdmacm.Conn, error) { return s.cm.Dial(s, at(host, port), o) }
}

func (s *station) acceptor(l *rdmacm.Listener) func(rdmacm.Config) (*rdmacm.Conn, error) {
	return func(o rdmacm.Config) (*rdmacm.Conn, error) {
		r, err := l.Request(s)
		if err != nil {
			return nil, err
		}
		return r.Accept(s, o)
	}
}

// wantDisconnected checks that a connection has ended by a disconnect.
func wantDisconnected(c *rdmacm.Conn) error {
	if err := c.Err(); !errors.Is(err, rdmacm.ErrDisconnected) {
		return fmt.Errorf("the connection to %v ended with %v, want %w", c.RemoteAddr(), err, rdmacm.ErrDisconnected)
	}
	return nil
}

package abi

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// Listener accepts the connections of clients. Accept returns an error that matches net.ErrClosed after Close.
type Listener interface {
	Accept() (*Conn, error)
	Close() error
}

// Listen returns the Listener on a socket, whose connections tell who sends (Conn.TellSenders) from their first
// message on.
func Listen(l *net.UnixListener) (Listener, error) {
	if err := tellSenders(l); err != nil {
		return nil, err
	}
	return sockets{l}, nil
}

type sockets struct{ *net.UnixListener }

func (s sockets) Accept() (*Conn, error) {
	c, err := s.AcceptUnix()
	if err != nil {
		return nil, err
	}
	return NewConn(c), nil
}

// Local connects clients to a server in the same process, in a simulation (testing/synctest). The connections are
// sockets, so messages, descriptors and credentials are those that the kernel passes; only who waits for them waits
// for a channel (bell.go).
type Local struct {
	tell   func(func())
	conns  chan *Conn
	once   sync.Once
	closed chan struct{}
}

// localBacklog is how many connections may wait for Accept.
const localBacklog = 64

// NewLocal returns a Local. When something has happened on one of its connections tell is called with the function that
// wakes those who wait. It calls that, at once or after the turn that a device of the server takes, as no goroutine
// shall run meanwhile; and it has the devices look for work, as they wait for no descriptor either.
func NewLocal(tell func(wake func())) *Local {
	return &Local{tell: tell, conns: make(chan *Conn, localBacklog), closed: make(chan struct{})}
}

// Dial connects to the server.
func (l *Local) Dial(ctx context.Context) (*Conn, error) {
	client, server, err := newPair(l.tell)
	if err != nil {
		return nil, err
	}
	select {
	case l.conns <- server:
	case <-ctx.Done():
		return nil, errors.Join(ctx.Err(), client.Close(), server.Close())
	}
	select {
	case <-l.closed:
		_ = l.Close() // the first time may have missed the connection
		return nil, errors.Join(fmt.Errorf("connect to a local server: %w", unix.ECONNREFUSED), client.Close())
	default:
		return client, nil
	}
}

// Accept returns the next connection.
func (l *Local) Accept() (*Conn, error) {
	select {
	case <-l.closed:
		return nil, net.ErrClosed
	default:
	}
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Close ends the connections that were not accepted, and refuses further ones.
func (l *Local) Close() error {
	l.once.Do(func() { close(l.closed) })
	for {
		select {
		case c := <-l.conns:
			_ = c.Close()
		default:
			return nil
		}
	}
}

// newPair returns both ends of a connection within this process.
func newPair(tell func(func())) (a, b *Conn, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, nil, os.NewSyscallError("socketpair", err)
	}
	shared := newBell(tell)
	a, aErr := connOf(fds[0], shared)
	b, bErr := connOf(fds[1], shared)
	if err := errors.Join(aErr, bErr); err != nil {
		for _, c := range []*Conn{a, b} {
			if c != nil {
				_ = c.Close()
			}
		}
		return nil, nil, err
	}
	return a, b, nil
}

// connOf returns the Conn on a socket, which it closes: the Conn has a duplicate.
func connOf(fd int, b *bell) (*Conn, error) {
	f := os.NewFile(uintptr(fd), "local")
	defer f.Close()
	c, err := net.FileConn(f)
	if err != nil {
		return nil, err
	}
	conn := NewConn(c.(*net.UnixConn))
	conn.bell = b
	return conn, nil
}

package rping

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/goroce/goroce/cmd/goroced/internal/waiting"
	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/rdmacm"
)

// maxClients limits the clients of a persistent server, each of which takes a queue pair and MaxSize bytes. More must
// wait.
const maxClients = 256

// serve runs a server.
func serve(ctx context.Context, cm *rdmacm.CM, o *Options) error {
	l, err := cm.Listen(ctx, o.hostPort(), rdmacm.ListenConfig{})
	if err != nil {
		return fmt.Errorf("wait for a client: %w; -a takes an address of the device, -p a port that is free", err)
	}
	defer l.Close()
	here := o.Here.Client(fmt.Sprintf("goroced rping -c -p %d %%s -a %%v", l.Addr().Port()))
	fmt.Fprintf(o.Log, "waiting for a client on %v: `goroced rping -c -a ADDR -p %d`, or `rping -c -a ADDR -p %[2]d`"+
		"%s\n", l.Addr(), l.Addr().Port(), here)
	if o.Persistent {
		return serveMany(ctx, cm, l, o)
	}
	for {
		r, err := nextRequest(ctx, l)
		if err != nil {
			return err
		}
		if err = serveClient(ctx, cm, r, o); !errors.Is(err, rdmacm.ErrPeer) {
			return err
		}
		o.refused(r, err)
	}
}

func nextRequest(ctx context.Context, l *rdmacm.Listener) (*rdmacm.Request, error) {
	r, err := l.Request(ctx)
	return r, waiting.Ended(ctx, err, "a client on %v", l.Addr())
}

// serveMany serves clients until ctx ends. An error with one client has no effect on others.
func serveMany(ctx context.Context, cm *rdmacm.CM, l *rdmacm.Listener, o *Options) error {
	var clients sync.WaitGroup
	defer clients.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	places := make(chan struct{}, maxClients)
	for {
		select {
		case places <- struct{}{}:
		case <-ctx.Done():
			return waiting.Ended(ctx, ctx.Err(), "a client on %v", l.Addr())
		}
		r, err := nextRequest(ctx, l)
		if err != nil {
			return err
		}
		clients.Go(func() {
			defer func() { <-places }()
			if err := serveClient(ctx, cm, r, o); err != nil && ctx.Err() == nil {
				o.refused(r, err)
			}
		})
	}
}

// refused logs how a client has failed. One that was refused for its path MTU asks again for the one that it was told:
// that is how ends of unequal MTU connect, and no fault.
func (o *Options) refused(r *rdmacm.Request, err error) {
	if errors.Is(err, rdmacm.ErrPathMTU) {
		o.debugf("client %v: %v", r.RemoteAddr(), err)
		return
	}
	fmt.Fprintf(o.Log, "client %v: %v\n", r.RemoteAddr(), err)
}

// server is the connection of a server.
type server struct {
	*endpoint
	buf []byte // what was READ
	mr  ib.MR  // of buf
}

// serveClient accepts a client and serves it until it disconnects.
func serveClient(ctx context.Context, cm *rdmacm.CM, r *rdmacm.Request, o *Options) (err error) {
	s, err := newServer(cm.Device(), o)
	if err != nil {
		return errors.Join(err, r.Reject(nil))
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	if err := s.accept(ctx, r); err != nil {
		return err
	}
	for n := 0; ; n++ {
		p, err := s.receive(ctx)
		if errors.Is(err, rdmacm.ErrDisconnected) {
			fmt.Fprintln(o.Log, "server DISCONNECT EVENT...")
			return nil
		}
		if err == nil {
			err = s.pong(ctx, p)
		}
		if err != nil {
			return fmt.Errorf("ping %d: %w", n, err)
		}
	}
}

func newServer(dev ib.Device, o *Options) (*server, error) {
	e, err := newEndpoint(dev, o)
	if err != nil {
		return nil, err
	}
	s := &server{endpoint: e, buf: e.memory(MaxSize)}
	if s.mr, err = e.register(s.buf, ib.LocalWrite); err != nil {
		return nil, errors.Join(err, e.Close())
	}
	return s, nil
}

func (s *server) accept(ctx context.Context, r *rdmacm.Request) error {
	wait, cancel := context.WithTimeout(ctx, s.o.Timeout)
	defer cancel()
	conn, err := r.Accept(wait, s.config(0))
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		return err
	}
	s.Own(conn)
	s.o.debugf("connected: %v to %v", conn.LocalAddr(), conn.RemoteAddr())
	return nil
}

// pong READs a text and WRITEs it to the place in the client's next message.
func (s *server) pong(ctx context.Context, from place) error {
	s.o.debugf("received %v", from)
	if from.length > MaxSize {
		return fmt.Errorf("%w: its text has %d bytes, more than %d", ErrProtocol, from.length, MaxSize)
	}
	if err := s.rdma(ctx, ib.WRRead, s.mr, int(from.length), from); err != nil {
		return err
	}
	s.o.debugf("RDMA READ complete")
	data := text(s.buf[:from.length])
	if s.o.Verbose {
		s.o.printText("server ping data", data)
	}
	if err := s.send(place{}); err != nil {
		return err
	}
	to, err := s.receive(ctx)
	if err != nil {
		return err
	}
	s.o.debugf("received %v", to)
	// The C tool writes the text with its NUL, however much it has READ.
	length := min(len(data)+1, int(from.length))
	if int64(to.length) < int64(length) {
		return fmt.Errorf("%w: it has room for %d bytes of a text of %d", ErrProtocol, to.length, length)
	}
	if err := s.rdma(ctx, ib.WRWrite, s.mr, length, to); err != nil {
		return err
	}
	s.o.debugf("RDMA WRITE complete")
	return s.send(place{})
}

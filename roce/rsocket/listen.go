package rsocket

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"

	"github.com/goroce/goroce/roce/rdmacm"
)

// defaultBacklog is Options.Backlog if that is 0.
const defaultBacklog = 128

// Listener accepts connections. It is a net.Listener.
type Listener struct {
	o     Options
	cm    *rdmacm.CM
	below *rdmacm.Listener
	addr  Addr

	stop   context.CancelFunc
	ctx    context.Context // ends with Close, or when the CM ends
	ready  chan *Conn
	tasks  sync.WaitGroup // run and handshakes
	closed atomic.Bool
}

// Listen accepts connections for host:port; an empty host stands for all addresses of the device, port 0 for a free
// port. ctx limits the resolution of addr.
//
// Up to Options.Backlog handshakes run concurrently, so a slow peer does not delay other peers. A request that is not
// from an rsocket is rejected and reported to Options.OnRefuse.
func Listen(ctx context.Context, cm *rdmacm.CM, addr string, o Options) (*Listener, error) {
	l, err := listen(ctx, cm, addr, o)
	if err != nil {
		return nil, &net.OpError{Op: "listen", Net: Network, Err: err}
	}
	return l, nil
}

func listen(ctx context.Context, cm *rdmacm.CM, addr string, o Options) (*Listener, error) {
	attr := cm.Device().Attr()
	if _, err := o.resolve(&attr); err != nil {
		return nil, err
	}
	if o.Backlog <= 0 {
		o.Backlog = defaultBacklog
	}
	below, err := cm.Listen(ctx, addr, rdmacm.ListenConfig{Backlog: o.Backlog})
	if err != nil {
		return nil, err
	}
	l := &Listener{o: o, cm: cm, below: below, addr: Addr{below.Addr()}, ready: make(chan *Conn)}
	l.ctx, l.stop = context.WithCancel(context.Background())
	l.tasks.Add(1)
	go l.run()
	return l, nil
}

// Addr returns the address, an Addr, with the port that was chosen.
func (l *Listener) Addr() net.Addr { return l.addr }

// Accept waits for the next connection.
func (l *Listener) Accept() (net.Conn, error) {
	c, err := l.AcceptConn(context.Background())
	if err != nil {
		return nil, err
	}
	return c, nil
}

// AcceptConn waits for the next connection. It fails when ctx ends, and with net.ErrClosed when the Listener or the CM
// is closed.
func (l *Listener) AcceptConn(ctx context.Context) (*Conn, error) {
	select {
	case c := <-l.ready:
		return c, nil
	case <-l.ctx.Done():
		return nil, l.opError("accept", net.ErrClosed)
	case <-ctx.Done():
		return nil, l.opError("accept", ctx.Err())
	}
}

// Close ends the Listener and rejects requests that wait. Connections that were accepted stay open.
func (l *Listener) Close() error {
	if l.closed.Swap(true) {
		return l.opError("close", net.ErrClosed)
	}
	l.stop()
	err := l.below.Close()
	l.tasks.Wait()
	return l.opError("close", err)
}

func (l *Listener) opError(op string, err error) error {
	if err == nil {
		return nil
	}
	return &net.OpError{Op: op, Net: Network, Addr: l.addr, Err: err}
}

// run starts a handshake for each request.
func (l *Listener) run() {
	defer l.tasks.Done()
	defer l.stop()
	slots := make(chan struct{}, l.o.Backlog)
	for {
		select {
		case slots <- struct{}{}:
		case <-l.ctx.Done():
			return
		}
		req, err := l.below.Request(l.ctx)
		if err != nil {
			return
		}
		l.tasks.Add(1)
		go func() {
			defer l.tasks.Done()
			defer func() { <-slots }()
			l.handshake(req)
		}()
	}
}

// handshake accepts a request and passes the connection to Accept.
func (l *Listener) handshake(req *rdmacm.Request) {
	c, err := l.accept(req)
	if err != nil {
		if l.o.OnRefuse != nil && l.ctx.Err() == nil {
			l.o.OnRefuse(req.RemoteAddr(), err)
		}
		return
	}
	select {
	case l.ready <- c:
	case <-l.ctx.Done():
		_ = c.Close()
	}
}

func (l *Listener) accept(req *rdmacm.Request) (*Conn, error) {
	peer, err := parseRecord(req.PrivateData())
	if err != nil {
		return nil, errors.Join(err, req.Reject(nil))
	}
	ep, err := newEndpoint(l.cm.Device(), l.o)
	if err != nil {
		return nil, errors.Join(err, req.Reject(nil))
	}
	ctx, cancel := context.WithCancel(l.ctx)
	defer cancel()
	cfg := ep.config()
	first := make(chan struct{})
	cfg.Prepare = func(rc *rdmacm.Conn) error {
		// A message from the peer says as well as its RTU that the peer is ready (IBTA 12.9.7.2).
		go func() {
			defer close(first)
			if ep.firstEvent(ctx) {
				rc.DataArrived()
			}
		}()
		return ep.postReceives(rc.QP())
	}
	rc, err := req.Accept(ctx, cfg)
	cancel()
	if err != nil {
		ep.close()
		return nil, fmt.Errorf("accept %v: %w", req.RemoteAddr(), err)
	}
	<-first
	return newConn(ep, rc.QP(), rc, peer, rc.LocalAddr(), rc.RemoteAddr()), nil
}

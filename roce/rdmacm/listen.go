package rdmacm

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/ib/driver"
)

// ListenConfig configures a listener.
type ListenConfig struct {
	Config      // for connections that Accept returns; with Service UD it is a datagram service
	Backlog int // requests that may wait for Request or Accept (default 128); more are rejected
}

const defaultBacklog = 128

// Listener accepts requests. It is safe for concurrent use.
type Listener struct {
	cm       *CM
	id       ib.CMID
	addr     netip.AddrPort
	o        ListenConfig
	datagram bool
	done     chan struct{} // closed when the listener is

	// Guarded by CM.mu.
	open       map[*Request]struct{} // not answered yet
	requests   []*Request            // those of open that Request and Accept have not taken yet
	handshakes []*Conn               // accepted, but not confirmed by the peer
	ready      []*Conn               // confirmed by the peer, for Accept to return
	changed    chan struct{}         // closed and replaced when one of the above has changed
	closed     bool
	cause      error // of the end, once closed
}

// Listen accepts requests for host:port. An empty or unspecified host stands for all addresses of the device, port 0
// for a free port. Another listener may use the same port at another address of the device, but no address can have
// two.
func (c *CM) Listen(ctx context.Context, addr string, o ListenConfig) (*Listener, error) {
	l, err := c.newListener(ctx, addr, o)
	if err == nil {
		err = c.whileOpen(l.start)
	}
	if err != nil {
		return nil, opError("listen", addr, err)
	}
	return l, nil
}

// newListener checks the arguments and creates a Listener.
func (c *CM) newListener(ctx context.Context, addr string, o ListenConfig) (*Listener, error) {
	full, err := o.complete(c.dev, "listen", ib.RC, ib.UC, ib.UD)
	if err != nil {
		return nil, err
	}
	if o.Backlog < 0 {
		return nil, refuse("listen", "Backlog", o.Backlog, "at least 1; 0 for the default")
	} else if o.Backlog == 0 {
		o.Backlog = defaultBacklog
	}
	o.Service, o.Space = full.Service, full.Space
	addrs, port, err := lookup(ctx, o.Space, addr)
	if err != nil {
		return nil, err
	}
	host := netip.IPv6Unspecified()
	if len(addrs) > 0 {
		host = addrs[0]
	}
	if !host.IsUnspecified() {
		gids, err := c.dev.GIDs(1)
		if err != nil {
			return nil, err
		}
		i := slices.IndexFunc(addrs, func(a netip.Addr) bool { return holds(gids, a) })
		if i < 0 {
			return nil, refuse("listen", "address", host,
				"one of the device: "+driver.ListGIDs(gids)+"; none for all of them")
		}
		host = addrs[i]
	}
	return &Listener{cm: c, addr: netip.AddrPortFrom(host, port), o: o, datagram: o.Service == ib.UD,
		open: map[*Request]struct{}{},
		done: make(chan struct{}), changed: make(chan struct{})}, nil
}

// start makes the connection manager listen.
func (l *Listener) start() error {
	id, err := l.cm.ch.CreateID(ib.CMIDInit{Space: l.o.Space, Type: l.o.Service, ServiceID: l.o.ServiceID})
	if err != nil {
		return err
	}
	at := l.addr
	if at.Addr().IsUnspecified() {
		at = netip.AddrPortFrom(netip.IPv6Unspecified(), at.Port()) // both families
	}
	if err = id.Bind(at); err == nil {
		err = id.Listen(0) // no limit: the Listener has its own backlog
	}
	var q ib.CMIDAttr
	if err == nil {
		q, err = id.Query()
	}
	if err != nil {
		_ = id.Close()
		return err
	}
	l.id, l.addr = id, netip.AddrPortFrom(l.addr.Addr(), q.Local.Port())
	l.cm.listeners[id] = l
	return nil
}

// Addr returns the address of the listener, with the port that was chosen. An unspecified address stands for all
// addresses of the device, of both families.
func (l *Listener) Addr() netip.AddrPort { return l.addr }

// Close ends the listener and rejects the requests that are not answered. Connections that Accept has returned stay
// open.
func (l *Listener) Close() error {
	c := l.cm
	defer c.closeAbandoned() // after mu is released
	c.mu.Lock()
	defer c.mu.Unlock()
	if l.closed {
		return nil
	}
	l.shut()
	return nil
}

// shut ends the listener. The caller holds CM.mu.
func (l *Listener) shut() {
	c := l.cm
	l.closed, l.cause = true, cmp.Or(c.err, ib.ErrClosed)
	close(l.done)
	delete(c.listeners, l.id)
	_ = l.id.Close()
	for r := range l.open {
		_ = r.reject(ib.RejectConsumer, nil, nil)
		delete(c.owners, r.id)
		r.end(l.errClosed())
	}
	unclaimed := append(l.ready, l.handshakes...)
	l.ready = nil
	for _, conn := range unclaimed {
		l.abandon(conn, l.errClosed())
	}
}

func (l *Listener) errClosed() error {
	return fmt.Errorf("listener on %v: %w", l.addr, l.cause)
}

// abandon ends a connection that the application has seen at most in Prepare. The caller calls CM.closeAbandoned when
// it has released CM.mu.
func (l *Listener) abandon(conn *Conn, err error) {
	l.handshakeDone(conn)
	conn.release(err)
	delete(l.cm.conns, conn)
	l.cm.abandoned = append(l.cm.abandoned, conn)
}

// handshakeDone removes a connection from those that wait for the peer.
func (l *Listener) handshakeDone(conn *Conn) {
	l.handshakes = slices.DeleteFunc(l.handshakes, func(other *Conn) bool { return other == conn })
}

// wake wakes the goroutines in wait.
func (l *Listener) wake() {
	close(l.changed)
	l.changed = make(chan struct{})
}

// established makes a connection available to Accept.
func (l *Listener) established(conn *Conn) {
	l.handshakeDone(conn)
	l.ready = append(l.ready, conn)
	l.wake()
}

// ended drops a connection whose handshake has failed.
func (l *Listener) ended(conn *Conn) {
	if slices.Contains(l.handshakes, conn) {
		l.abandon(conn, conn.err)
		l.wake()
	}
}

// request adds a new request to its listener. If the backlog is full, it rejects the oldest request of the host that
// has the most of them; if that host has no more than the new one's, it rejects the new request.
func (c *CM) request(ev *ib.CMEvent) {
	l := c.listeners[ev.Listener]
	if l == nil { // the listener has been closed
		_ = ev.ID.Reject(ib.CMReject{Reason: ib.RejectConsumer})
		_ = ev.ID.Close()
		return
	}
	r, err := newRequest(l, ev)
	if err != nil { // the request has ended already
		_ = ev.ID.Close()
		return
	}
	l.open[r] = struct{}{}
	if len(l.requests) >= l.o.Backlog {
		loser, ok := victim(l.requests, countBySource(l.requests)[r.source()])
		if !ok {
			loser = r
		}
		loser.rejectOverflow(ib.RejectNoResources)
	}
	if r.gone != nil {
		return
	}
	c.owners[ev.ID] = r
	l.requests = append(l.requests, r)
	l.wake()
}

// wait waits until take returns true. It calls take with CM.mu held.
func (l *Listener) wait(ctx context.Context, op string, take func() bool) error {
	for {
		l.cm.mu.Lock()
		taken, changed, closed := !l.closed && take(), l.changed, l.closed
		l.cm.mu.Unlock()
		if taken {
			return nil
		}
		if closed {
			return fmt.Errorf("%s: %w", op, l.errClosed())
		}
		select {
		case <-changed:
		case <-l.done:
		case <-ctx.Done():
			return opError(op, l.addr.String(), ctx.Err())
		}
	}
}

// next takes the oldest request out of the queue.
func (l *Listener) next() *Request {
	r := l.requests[0]
	l.requests = slices.Delete(l.requests, 0, 1)
	return r
}

// nextToAccept takes the oldest request out of the queue if another handshake may begin, otherwise it returns nil. If
// all handshakes wait for peers that do not confirm, the oldest one of the host that has the most of them is ended in
// favour of another host's request.
func (l *Listener) nextToAccept() *Request {
	if len(l.handshakes) < l.o.Backlog {
		return l.next()
	}
	count := countBySource(l.handshakes)
	for _, r := range l.requests {
		if loser, ok := victim(l.handshakes, count[r.source()]); ok {
			l.abandon(loser, fmt.Errorf("%w: it did not confirm, and others wait", ErrPeer))
			l.requests = slices.DeleteFunc(l.requests, func(q *Request) bool { return q == r })
			return r
		}
	}
	return nil
}

// Request waits for the next request. The caller must answer it.
func (l *Listener) Request(ctx context.Context) (r *Request, err error) {
	err = l.wait(ctx, "request", func() bool {
		if len(l.requests) > 0 {
			r = l.next()
		}
		return r != nil
	})
	return r, err
}

// Accept accepts requests as configured, and returns the first connection that its peer has confirmed. A peer that does
// not confirm does not delay other peers. Requests of peers that give up, or ask for another service, are skipped. An
// error means that ctx or the listener has ended, or that a QP could not be created or prepared.
func (l *Listener) Accept(ctx context.Context) (*Conn, error) {
	const op = "accept"
	if l.datagram {
		return nil, opError(op, l.addr.String(), refuse(op, "Service", ib.UD,
			"Request and AcceptDatagram: a datagram service has no connections"))
	}
	for {
		var conn *Conn
		var r *Request
		err := l.wait(ctx, op, func() bool {
			switch {
			case len(l.ready) > 0:
				conn = l.ready[0]
				l.ready = slices.Delete(l.ready, 0, 1)
			case len(l.requests) > 0:
				r = l.nextToAccept()
			}
			return conn != nil || r != nil
		})
		l.cm.closeAbandoned()
		if err != nil || conn != nil {
			return conn, err
		}
		if _, err := r.start(l.o.Config, l); err != nil && !errors.Is(err, ErrPeer) {
			return nil, opError(op, r.remote.String(), err)
		}
	}
}

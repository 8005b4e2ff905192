package rdmacm

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/wire"
)

// ListenConfig says what a listener is like.
type ListenConfig struct {
	Config      // of what Accept accepts; Service UD makes a datagram service
	Backlog int // requests that wait for Request or Accept (default 128); more are rejected
}

const defaultBacklog = 128

// Listener takes requests. It is safe for concurrent use.
type Listener struct {
	cm       *CM
	id       ib.CMID
	addr     netip.AddrPort
	o        ListenConfig
	datagram bool
	done     chan struct{} // closed with the listener

	// Guarded by CM.mu.
	open     map[*Request]struct{} // those without an answer
	requests []*Request            // those of them that nobody has taken
	shaking  []*Conn               // Accept has answered, the peer has not confirmed
	ready    []*Conn               // the peer has
	changed  chan struct{}         // closed, and made anew, when there is news above
	closed   bool
}

// Listen takes requests for host:port; an empty or unspecified host stands for all
// addresses of the device, port 0 for one that is free. Others may listen on the same port
// of the device at another address; one that listens at all has it alone.
func (c *CM) Listen(ctx context.Context, addr string, o ListenConfig) (*Listener, error) {
	l, err := c.newListener(ctx, addr, o)
	if err == nil {
		err = c.input(l.start)
	}
	if err != nil {
		return nil, opError("listen", addr, err)
	}
	return l, nil
}

// newListener checks the arguments.
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
				"one of the device: "+ib.ListGIDs(gids)+"; none for all of them")
		}
		host = addrs[i]
	}
	return &Listener{cm: c, addr: netip.AddrPortFrom(host, port), o: o, datagram: o.Service == ib.UD,
		open: map[*Request]struct{}{},
		done: make(chan struct{}), changed: make(chan struct{})}, nil
}

// start has the connection manager listen.
func (l *Listener) start() error {
	id, err := l.cm.ch.CreateID(ib.CMIDInit{Space: l.o.Space, Type: l.o.Service, ServiceID: l.o.ServiceID})
	if err != nil {
		return err
	}
	at := l.addr
	if at.Addr().IsUnspecified() {
		at = netip.AddrPortFrom(netip.IPv6Unspecified(), at.Port()) // of both families
	}
	if err = id.Bind(at); err == nil {
		err = id.Listen(0) // the backlog is kept here
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

// Addr returns the address that is listened on, with the port that was chosen. An
// unspecified address stands for all of the device, of both families.
func (l *Listener) Addr() netip.AddrPort { return l.addr }

// Close ends the listener and rejects what waits. Connections that Accept returned
// stay.
func (l *Listener) Close() error {
	c := l.cm
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
	l.closed = true
	close(l.done)
	delete(c.listeners, l.id)
	_ = l.id.Close()
	for r := range l.open {
		_ = r.decline(wire.RejectInvalidServiceID, nil, nil)
		delete(c.owners, r.id)
		r.end(l.errClosed())
	}
	unclaimed := append(l.ready, l.shaking...)
	l.ready = nil
	for _, conn := range unclaimed {
		l.abandon(conn, l.errClosed())
	}
}

func (l *Listener) errClosed() error {
	return fmt.Errorf("listener on %v: %w", l.addr, ib.ErrClosed)
}

// abandon closes a connection that nobody has seen but Prepare.
func (l *Listener) abandon(conn *Conn, err error) {
	l.shaken(conn)
	conn.release(err)
	delete(l.cm.conns, conn)
	_ = conn.ep.made.close() // busy if Prepare registered memory, which its owner closes
}

// shaken says that a connection is no longer half open.
func (l *Listener) shaken(conn *Conn) {
	l.shaking = slices.DeleteFunc(l.shaking, func(other *Conn) bool { return other == conn })
}

// announce wakes whoever waits.
func (l *Listener) announce() {
	close(l.changed)
	l.changed = make(chan struct{})
}

// established makes a connection one for Accept to return.
func (l *Listener) established(conn *Conn) {
	l.shaken(conn)
	l.ready = append(l.ready, conn)
	l.announce()
}

// ended forgets a connection that never was one.
func (l *Listener) ended(conn *Conn) {
	if slices.Contains(l.shaking, conn) {
		l.abandon(conn, conn.err)
		l.announce()
	}
}

// request takes a new request to its listener. What is beyond the backlog is refused at
// once: the oldest request of the host that has most of them, if that is still not the new
// one's.
func (c *CM) request(ev *ib.CMEvent) {
	l := c.listeners[ev.Listener]
	if l == nil { // closed by now
		_ = ev.ID.Reject(ib.CMReject{Reason: uint16(wire.RejectInvalidServiceID)})
		_ = ev.ID.Close()
		return
	}
	r, err := newRequest(l, ev)
	if err != nil { // it is over already
		_ = ev.ID.Close()
		return
	}
	l.open[r] = struct{}{}
	if len(l.requests) >= l.o.Backlog {
		loser, ok := victim(l.requests, shares(l.requests)[r.source()])
		if !ok {
			loser = r
		}
		loser.pass(wire.RejectNoResources)
	}
	if r.gone != nil {
		return
	}
	c.owners[ev.ID] = r
	l.requests = append(l.requests, r)
	l.announce()
}

// wait waits until take, which is called with CM.mu held, returns true.
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

// next takes the oldest request.
func (l *Listener) next() *Request {
	r := l.requests[0]
	l.requests = slices.Delete(l.requests, 0, 1)
	return r
}

// nextToAccept takes the oldest request that there is room to shake hands with, nil if there is
// none. Where peers have taken all of it and do not confirm, the oldest handshake of
// the host that has most of them ends in favour of another host's request.
func (l *Listener) nextToAccept() *Request {
	if len(l.shaking) < l.o.Backlog {
		return l.next()
	}
	count := shares(l.shaking)
	for _, r := range l.requests {
		if loser, ok := victim(l.shaking, count[r.source()]); ok {
			l.abandon(loser, fmt.Errorf("%w: it did not confirm, and others wait", errPassed))
			l.requests = slices.DeleteFunc(l.requests, func(q *Request) bool { return q == r })
			return r
		}
	}
	return nil
}

// Request waits for the next request. Whoever takes it answers it.
func (l *Listener) Request(ctx context.Context) (r *Request, err error) {
	err = l.wait(ctx, "request", func() bool {
		if len(l.requests) > 0 {
			r = l.next()
		}
		return r != nil
	})
	return r, err
}

// Accept accepts requests as Config says, and returns the first connection whose
// peer is ready. Peers that fall silent keep no other waiting. Those that give up,
// and those that want another service, are passed over; an error says that the
// listener has ended, or that a QP could not be made or prepared.
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
		if err != nil || conn != nil {
			return conn, err
		}
		if _, err := r.start(l.o.Config, l); err != nil && !errors.Is(err, errPassed) {
			return nil, opError(op, r.remote.String(), err)
		}
	}
}

package rdmacm

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/cm"
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
	id       cm.ListenID
	addr     netip.AddrPort
	local    ib.GID // of addr, zero if that is unspecified
	held     portKey
	service  uint64
	o        ListenConfig
	datagram bool
	done     chan struct{} // closed with the listener

	// Guarded by CM.mu.
	requests []*Request
	shaking  map[*Conn]struct{} // Accept has answered, the peer has not confirmed
	ready    []*Conn            // the peer has
	changed  chan struct{}      // closed, and made anew, when there is news above
	closed   bool
}

// Listen takes requests for host:port; an empty or unspecified host stands for all
// addresses of the device, port 0 for one that is free. Another CM of the device may
// listen on the same port at another address; one that listens at all has it alone.
func (c *CM) Listen(ctx context.Context, addr string, o ListenConfig) (*Listener, error) {
	l, err := c.newListener(ctx, addr, o)
	if err == nil {
		err = c.input(func(ib.Instant) error { return l.open() })
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
	host, local := netip.IPv6Unspecified(), ib.GID{}
	if len(addrs) > 0 {
		host = addrs[0]
	}
	if !host.IsUnspecified() {
		gids, err := c.dev.GIDs(1)
		if err != nil {
			return nil, err
		}
		i := slices.IndexFunc(addrs, func(a netip.Addr) bool {
			_, err := gidIndex(gids, ib.GIDFromAddr(a))
			return err == nil
		})
		if i < 0 {
			return nil, refuse("listen", "address", host, "one of the device: "+list(gids)+"; none for all of them")
		}
		host, local = addrs[i], ib.GIDFromAddr(addrs[i])
	}
	return &Listener{cm: c, addr: netip.AddrPortFrom(host, port), local: local, o: o, datagram: o.Service == ib.UD,
		done: make(chan struct{}), shaking: map[*Conn]struct{}{}, changed: make(chan struct{})}, nil
}

// open takes the port and tells the state machine.
func (l *Listener) open() error {
	c := l.cm
	if err := l.claim(); err != nil {
		return err
	}
	id, err := c.m.Listen(l.service, l.local, l.datagram)
	if err != nil {
		l.disclaim()
		return err
	}
	l.id = id
	c.listeners[id] = l
	return nil
}

// claim takes the port, or one that is free, and the service ID: of this CM, and of the
// device, where other CMs may have it at other addresses.
func (l *Listener) claim() (err error) {
	c := l.cm
	if l.service = l.o.ServiceID; l.service != 0 {
		return c.gsi.serve(l.service, l.local)
	}
	chosen := l.addr.Port() == 0
	for range 1<<16 - firstDynamic {
		l.held = portKey{l.o.Space, l.addr.Port()}
		if !chosen {
			err = c.ports.take(l.held, false)
		} else if l.held, err = c.ports.pick(l.o.Space); err == nil {
			l.addr = netip.AddrPortFrom(l.addr.Addr(), l.held.port)
		}
		if err != nil {
			return err
		}
		l.service = l.o.Space.ServiceID(l.held.port)
		if err = c.gsi.serve(l.service, l.local); err == nil {
			return nil
		}
		c.ports.release(l.held)
		if !chosen || !errors.Is(err, ib.ErrBusy) {
			break
		}
	}
	return err
}

// disclaim gives back what claim has taken.
func (l *Listener) disclaim() {
	l.cm.gsi.unserve(l.service, l.local)
	l.cm.ports.release(l.held)
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
	l.shut(c.now())
	c.settle()
	return nil
}

// shut ends the listener. The caller holds CM.mu and settles.
func (l *Listener) shut(now ib.Instant) {
	c := l.cm
	l.closed = true
	close(l.done)
	delete(c.listeners, l.id)
	l.disclaim()
	c.m.Unlisten(now, l.id)
	unclaimed := slices.AppendSeq(l.ready, maps.Keys(l.shaking))
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
	delete(l.shaking, conn)
	conn.release(err)
	delete(l.cm.conns, conn)
	_ = conn.ep.made.close() // busy if Prepare registered memory, which its owner closes
}

// announce wakes whoever waits.
func (l *Listener) announce() {
	close(l.changed)
	l.changed = make(chan struct{})
}

// established makes a connection one for Accept to return.
func (l *Listener) established(conn *Conn) {
	delete(l.shaking, conn)
	l.ready = append(l.ready, conn)
	l.announce()
}

// ended forgets a connection that never was one.
func (l *Listener) ended(conn *Conn) {
	if _, ok := l.shaking[conn]; ok {
		l.abandon(conn, conn.err)
		l.announce()
	}
}

// request takes a new request to its listener. What is beyond the backlog is
// refused at once.
func (c *CM) request(ev *cm.Event) {
	l := c.listeners[ev.Listener]
	r := newRequest(l, ev)
	if len(l.requests) >= l.o.Backlog {
		_ = r.decline(c.now(), wire.RejectNoResources, wire.SIDRNoQP, nil, nil)
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
		return nil, opError(op, l.addr.String(), refuse(op, "Service", ib.UD, "Request and AcceptDatagram: a datagram service has no connections"))
	}
	for {
		var conn *Conn
		var r *Request
		err := l.wait(ctx, op, func() bool {
			switch {
			case len(l.ready) > 0:
				conn = l.ready[0]
				l.ready = slices.Delete(l.ready, 0, 1)
			case len(l.requests) > 0 && len(l.shaking) < l.o.Backlog:
				r = l.next()
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

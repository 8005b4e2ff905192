package rdmacm

import (
	"context"
	"errors"
	"fmt"

	"github.com/goroce/goroce/ib"
)

// Dial connects to host:port. Host names are resolved as in package net. ctx limits the whole operation; an error that
// matches the error of ctx says which message got no answer. Without a deadline, Dial gives up after some twenty
// seconds of retransmissions.
//
// The path MTU is the smallest of Config.PathMTU, the port's, that of the route and what ICMP has told of the path. If
// the peer takes only smaller packets (REJ with reason 26) and Config.PathMTU is 0, Dial asks again, for smaller ones.
//
// If the peer refuses, the error is a *RejectError; if the network says that its UDP port 4791 is closed, or that its
// host cannot be reached, an *UnreachableError, at once; if there is no answer, a *TimeoutError. If Dial fails, a QP
// that the caller has provided is in ERR.
func (c *CM) Dial(ctx context.Context, addr string, o Config) (*Conn, error) {
	const op = opDial
	asked := o.PathMTU
	o, err := o.complete(c.dev, op, ib.RC, ib.UC)
	if err != nil {
		return nil, opError(op, addr, err)
	}
	r, err := c.route(ctx, addr, &o)
	if err != nil {
		return nil, opError(op, addr, err)
	}
	conn := &Conn{op: op, local: r.local, remote: r.remote, id: r.id}
	if asked == 0 {
		conn.smaller = make(chan ib.MTU, 1)
	}
	conn, err = c.newConn(conn)
	if err != nil {
		_ = r.id.Close()
		return nil, opError(op, addr, err)
	}
	if err = conn.open(r.id, &o); err == nil {
		err = conn.prepare(&o)
	}
	if err == nil {
		err = conn.establish(ctx, addr, &o)
	}
	if err != nil {
		_ = conn.Close() // fails with ib.ErrBusy if Prepare registered memory; its owner closes it
		return nil, opError(op, addr, err)
	}
	return conn, nil
}

// establish sends the REQ and waits for the answer. As long as the peer takes only smaller packets, and the caller has
// not said how large they are to be, it asks for smaller ones.
func (c *Conn) establish(ctx context.Context, addr string, o *Config) error {
	for {
		err := c.request(ctx, o)
		if err == nil {
			err = c.await(ctx, "REQ")
		}
		var narrow *narrowError
		if !errors.As(err, &narrow) {
			return err
		}
		o.PathMTU = narrow.mtu
		if err := c.again(ctx, addr, o); err != nil {
			return err
		}
	}
}

// again takes the connection to a new ID, with the same addresses, because that of a rejected REQ cannot be used any
// more. The QP is still in INIT.
func (c *Conn) again(ctx context.Context, addr string, o *Config) error {
	m := c.cm
	if err := m.whileOpen(func() error {
		m.forget(c.id)
		return c.err
	}); err != nil {
		return err
	}
	same := *o
	same.Local = c.local
	r, err := m.route(ctx, addr, &same)
	if err != nil {
		return err
	}
	return m.whileOpen(func() error {
		if c.err != nil { // Close was called before it could know of the new ID
			m.forget(r.id)
			return c.err
		}
		c.id = r.id
		return nil
	})
}

// narrowError says that the peer takes only packets of a smaller path MTU. It stays within Dial.
type narrowError struct{ mtu ib.MTU }

func (e *narrowError) Error() string { return fmt.Sprintf("the peer takes path MTU %d", e.mtu) }

// narrower returns the path MTU to ask for after a REJ, 0 if there is none. A REJ for an invalid path MTU may have the
// code of the largest that is allowed (IBTA 12.6.7.2).
func narrower(asked ib.MTU, ev *ib.CMEvent) ib.MTU {
	if ev.RejectReason() != ib.RejectInvalidMTU {
		return 0
	}
	if len(ev.Info) > 0 {
		if mtu := ib.MTUFromCode(int(ev.Info[0])); mtu != 0 && mtu < asked {
			return mtu
		}
	}
	if mtu := asked / 2; mtu.Valid() {
		return mtu
	}
	return 0
}

// request sends the REQ.
func (c *Conn) request(ctx context.Context, o *Config) error {
	m := c.cm
	return m.whileOpen(func() error {
		if c.err != nil { // Prepare has closed it
			return c.err
		}
		p := o.params(c.ep.qp.Num())
		p.Timeout = timeLeft(ctx)
		c.bounded = p.Timeout > 0
		m.owners[c.id] = c
		c.pathMTU = o.PathMTU
		if q, err := c.id.Query(); err == nil && q.PathMTU != 0 {
			c.pathMTU = q.PathMTU
		}
		return c.id.Connect(p)
	})
}

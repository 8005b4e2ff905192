package rdmacm

import (
	"context"

	"github.com/goroce/goroce/ib"
)

// Dial connects to host:port. Host names are resolved as in package net. ctx limits the whole operation; an error that
// matches the error of ctx says which message got no answer. Without a deadline, Dial gives up after some twenty
// seconds of retransmissions.
//
// If the peer refuses, the error is a *RejectError; if it does not answer, a *TimeoutError. If Dial fails, a QP that
// the caller has provided is in ERR.
func (c *CM) Dial(ctx context.Context, addr string, o Config) (*Conn, error) {
	const op = opDial
	o, err := o.complete(c.dev, op, ib.RC, ib.UC)
	if err != nil {
		return nil, opError(op, addr, err)
	}
	r, err := c.route(ctx, addr, &o)
	if err != nil {
		return nil, opError(op, addr, err)
	}
	conn, err := c.newConn(&Conn{op: op, local: r.local, remote: r.remote, id: r.id})
	if err != nil {
		_ = r.id.Close()
		return nil, opError(op, addr, err)
	}
	if err = conn.open(r.id, &o); err == nil {
		err = conn.prepare(&o)
	}
	if err == nil {
		err = conn.request(ctx, &o)
	}
	if err == nil {
		err = conn.await(ctx, "REQ")
	}
	if err != nil {
		_ = conn.Close() // fails with ib.ErrBusy if Prepare registered memory; its owner closes it
		return nil, opError(op, addr, err)
	}
	return conn, nil
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
		return c.id.Connect(p)
	})
}

package rdmacm

import (
	"context"

	"github.com/goroce/goroce/ib"
)

// Dial connects to host:port. An address resolves as the net package does it. ctx
// bounds all of it; an error that matches ctx's says which step got no answer.
// Without a deadline resends run out after some twenty seconds.
//
// A refusal is a *RejectError, silence a *TimeoutError. A QP of the caller's is in
// ERR after a failure.
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
		_ = conn.Close() // busy if Prepare registered memory, which its owner closes
		return nil, opError(op, addr, err)
	}
	return conn, nil
}

// request sends the REQ.
func (c *Conn) request(ctx context.Context, o *Config) error {
	m := c.cm
	return m.input(func() error {
		if c.err != nil { // Prepare closed it
			return c.err
		}
		p := o.params(c.ep.qp.Num())
		p.Timeout = left(ctx)
		c.bounded = p.Timeout > 0
		m.owners[c.id] = c
		return c.id.Connect(p)
	})
}

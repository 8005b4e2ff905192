package rdmacm

import (
	"context"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/cm"
)

// Dial connects to host:port. An address resolves as the net package does it. ctx
// bounds all of it; an error that matches ctx's says which step got no answer.
// Without a deadline resends run out after some twenty seconds.
//
// A refusal is a *RejectError, silence a *TimeoutError. A QP of the caller's is in
// ERR after a failure.
func (c *CM) Dial(ctx context.Context, addr string, o Config) (*Conn, error) {
	const op = "dial"
	o, err := o.complete(c.dev, op, ib.RC, ib.UC)
	if err != nil {
		return nil, opError(op, addr, err)
	}
	r, err := c.route(ctx, addr, &o)
	if err != nil {
		return nil, opError(op, addr, err)
	}
	conn, err := c.newConn(&Conn{op: op, local: r.local, remote: r.remote, held: r.held, path: r.path})
	if err != nil {
		return nil, opError(op, addr, err)
	}
	if err = conn.open(&o); err == nil {
		err = conn.prepare(&o)
	}
	if err == nil {
		err = conn.request(ctx, &o, r.service)
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
func (c *Conn) request(ctx context.Context, o *Config, service uint64) error {
	m := c.cm
	return m.input(func(now ib.Instant) (err error) {
		if c.err != nil { // Prepare closed it
			return c.err
		}
		giveUp := m.deadline(ctx)
		c.bounded = giveUp != ib.Never
		c.id, err = m.m.Connect(now, cm.Connect{
			Params: o.params(c.ep.qp.Num()), Path: c.path, ServiceID: service, SrcPort: c.local.Port(),
			PathMTU: o.PathMTU, AckTimeout: uint8(o.AckTimeout), GiveUp: giveUp,
		})
		if err == nil {
			m.owners[c.id] = c
		}
		return err
	})
}

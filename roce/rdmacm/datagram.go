package rdmacm

import (
	"bytes"
	"context"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/cm"
)

// DefaultQKey is the Q_Key that rdma_cm gives to datagram services and multicast
// groups (Linux's RDMA_UDP_QKEY).
const DefaultQKey = 0x01234567

// Service is a datagram service of a peer: where to send.
type Service struct {
	AH          ib.AHAttr
	QPN         ib.QPN
	QKey        uint32
	PrivateData []byte // all bytes of the field
}

// Resolve asks for the datagram service at host:port. Of o it takes Service, which
// is UD, Space, ServiceID, Local and PrivateData. Errors are those of Dial.
func (c *CM) Resolve(ctx context.Context, addr string, o Config) (*Service, error) {
	const op = "resolve"
	o, err := o.complete(c.dev, op, ib.UD)
	if err != nil {
		return nil, opError(op, addr, err)
	}
	r, err := c.route(ctx, addr, &o)
	if err != nil {
		return nil, opError(op, addr, err)
	}
	q := &resolution{cm: c, addr: r.remote.String(), done: make(chan struct{})}
	if q.service.AH, err = addressVector(c.dev, &r.path); err == nil {
		err = q.ask(ctx, &r, o.PrivateData)
	}
	if err == nil {
		err = q.await(ctx)
	}
	c.mu.Lock()
	c.ports.release(r.held)
	c.mu.Unlock()
	if err != nil {
		return nil, opError(op, addr, err)
	}
	return &q.service, nil
}

// resolution is a question for a datagram service.
type resolution struct {
	cm   *CM
	addr string
	done chan struct{} // closed with the answer

	// Guarded by CM.mu until done is closed.
	id      cm.ID
	bounded bool
	service Service
	err     error
}

// ask sends the SIDR_REQ.
func (q *resolution) ask(ctx context.Context, r *route, private []byte) error {
	c := q.cm
	return c.input(func(now ib.Instant) (err error) {
		giveUp := c.deadline(ctx)
		q.bounded = giveUp != ib.Never
		q.id, err = c.m.Resolve(now, cm.Resolve{Path: r.path, ServiceID: r.service, SrcPort: r.local.Port(), PrivateData: private, GiveUp: giveUp})
		if err == nil {
			c.owners[q.id] = q
		}
		return err
	})
}

func (q *resolution) event(ev *cm.Event) {
	switch ev.Kind {
	case cm.Resolved:
		q.service.QPN, q.service.QKey, q.service.PrivateData = ev.Conn.RemoteQPN, ev.QKey, bytes.Clone(ev.PrivateData)
		close(q.done)
	case cm.Rejected:
		q.end(&RejectError{Op: "resolve", Addr: q.addr, Status: ev.Status, Info: bytes.Clone(ev.Info), PrivateData: bytes.Clone(ev.PrivateData)})
	case cm.Unreachable:
		e := &TimeoutError{Op: "resolve", Addr: q.addr, Step: ev.Waited, Sent: ev.Sent}
		if q.bounded {
			e.Err = context.DeadlineExceeded
		}
		q.end(e)
	}
}

func (q *resolution) end(err error) {
	q.err = err
	close(q.done)
}

// await waits for the answer.
func (q *resolution) await(ctx context.Context) error {
	select {
	case <-q.done:
		return q.err
	case <-ctx.Done():
	}
	err := q.cm.input(func(now ib.Instant) error {
		q.cm.m.Timeout(now) // the deadline of ctx is one of the state machine's, too
		q.cm.dispatch()
		if q.cm.owners[q.id] == q {
			q.cm.m.Release(now, q.id)
			delete(q.cm.owners, q.id)
			q.end(&TimeoutError{Op: "resolve", Addr: q.addr, Step: "SIDR_REQ", Err: ctx.Err()})
		}
		return nil
	})
	if err != nil {
		return err
	}
	return q.err
}

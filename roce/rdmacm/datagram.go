package rdmacm

import (
	"context"
	"net/netip"

	"github.com/goroce/goroce/ib"
)

// DefaultQKey is the Q_Key that rdma_cm gives to datagram services and multicast
// groups (Linux's RDMA_UDP_QKEY).
const DefaultQKey = ib.DefaultCMQKey

// Service is a datagram service of a peer: the destination of its datagrams.
type Service struct {
	AH          ib.AHAttr
	QPN         ib.QPN
	QKey        uint32
	PrivateData []byte // all bytes of the field
}

// Resolve asks for the datagram service at host:port (SIDR, IBTA 12.11). It uses the fields Service (UD or 0), Space,
// ServiceID, Local and PrivateData of o. Its errors are like Dial's.
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
	q := &resolution{cm: c, id: r.id, remote: r.remote, done: make(chan struct{})}
	err = q.ask(ctx, o.PrivateData)
	if err == nil {
		err = q.await(ctx)
	}
	c.mu.Lock()
	c.forget(r.id)
	c.mu.Unlock()
	if err != nil {
		return nil, opError(op, addr, err)
	}
	return &q.service, nil
}

// resolution is a SIDR_REQ that waits for its answer.
type resolution struct {
	cm     *CM
	id     ib.CMID
	remote netip.AddrPort
	done   chan struct{} // closed when the answer has come

	// Guarded by CM.mu until done is closed.
	bounded bool
	service Service
	err     error
}

// ask sends the SIDR_REQ.
func (q *resolution) ask(ctx context.Context, private []byte) error {
	return q.cm.whileOpen(func() error {
		p := ib.CMConnParam{PrivateData: private, Timeout: timeLeft(ctx)}
		q.bounded = p.Timeout > 0
		q.cm.owners[q.id] = q
		return q.id.Connect(p)
	})
}

func (q *resolution) event(ev *ib.CMEvent) {
	switch {
	case ev.Type == ib.CMEstablished:
		q.service = Service{AH: ev.AH, QPN: ev.Param.QPN, QKey: ev.Param.QKey, PrivateData: ev.Param.PrivateData}
		q.end(nil)
	case ev.SIDRStatus() != 0:
		q.end(&RejectError{Op: "resolve", Addr: q.remote.String(), Status: ev.SIDRStatus(), Info: ev.Info,
			PrivateData: ev.Param.PrivateData})
	case ev.Type == ib.CMUnreachable:
		if e := unreachable("resolve", q.remote, ev); e != nil {
			q.end(e)
			return
		}
		e := &TimeoutError{Op: "resolve", Addr: q.remote.String(), Step: "SIDR_REQ", Sent: ev.Tries}
		if q.bounded {
			e.Err = context.DeadlineExceeded
		}
		q.end(e)
	}
}

func (q *resolution) end(err error) {
	select {
	case <-q.done: // the answer has come, and the CM is being closed
	default:
		q.err = err
		close(q.done)
	}
}

// await waits for the answer.
func (q *resolution) await(ctx context.Context) error {
	select {
	case <-q.done:
		return q.err
	case <-ctx.Done():
		awaitTimeout(ctx, q.bounded, q.done)
	}
	q.cm.mu.Lock()
	defer q.cm.mu.Unlock()
	q.end(&TimeoutError{Op: "resolve", Addr: q.remote.String(), Step: "SIDR_REQ", Err: ctx.Err()})
	return q.err
}

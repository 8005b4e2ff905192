package rdmacm

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/cm"
	"github.com/goroce/goroce/wire"
)

// errPassed marks failures that are the peer's: it gave up, or wants what the
// listener has not.
var errPassed = errors.New("the peer's request cannot be met")

// Request is a peer's wish to connect, or for a datagram service. It waits for one
// answer: Accept, AcceptDatagram or Reject, from any goroutine.
type Request struct {
	l             *Listener
	id            ib.CMID
	datagram      bool
	back          ib.AHAttr // of a datagram service: the way back
	local, remote netip.AddrPort
	private       []byte
	params        cm.ConnParams
	gone          error // why it cannot be answered; guarded by CM.mu
}

func newRequest(l *Listener, ev *ib.CMEvent) (*Request, error) {
	r := &Request{l: l, id: ev.ID, datagram: l.datagram, back: ev.AH, private: ev.Param.PrivateData}
	q, err := r.id.Query()
	if err != nil {
		return nil, err
	}
	r.local, r.remote = q.Local, q.Remote
	if !r.datagram {
		attr, _, err := r.id.InitQPAttr(ib.RTS)
		if err != nil {
			return nil, err
		}
		r.params = connParams(q.Type, &attr)
	}
	return r, nil
}

// LocalAddr returns the address that was asked.
func (r *Request) LocalAddr() netip.AddrPort { return r.local }

// RemoteAddr returns the peer's address and port; 0 for a port that it does not
// say, as without rdma_cm.
func (r *Request) RemoteAddr() netip.AddrPort { return r.remote }

// PrivateData returns what the peer sent: all bytes of the field, as Linux gives
// them.
func (r *Request) PrivateData() []byte { return r.private }

// Params returns what the peer wants; zero for a datagram service.
func (r *Request) Params() cm.ConnParams { return r.params }

// event says that the request is gone unanswered.
func (r *Request) event(ev *ib.CMEvent) {
	if lastEvent(ev.Type) {
		_ = r.id.Close()
		r.end(fmt.Errorf("%w: the peer gave up, or there were too many requests", errPassed))
	}
}

// end lets the request be unanswerable.
func (r *Request) end(err error) {
	if r.gone != nil {
		return
	}
	r.gone = err
	delete(r.l.open, r)
	r.l.requests = slices.DeleteFunc(r.l.requests, func(q *Request) bool { return q == r })
}

// answer runs f, which answers, unless somebody has.
func (r *Request) answer(f func() error) error {
	return r.l.cm.input(func() error {
		if r.gone != nil {
			return r.gone
		}
		err := f()
		if err == nil {
			r.answered()
		}
		return err
	})
}

// answered makes the request one that cannot be answered any more.
func (r *Request) answered() {
	if c := r.l.cm; c.owners[r.id] == owner(r) {
		delete(c.owners, r.id)
	}
	r.end(fmt.Errorf("request of %v: answered: %w", r.remote, ib.ErrState))
}

// Accept answers, and waits until the peer is ready. If it fails the peer is
// rejected.
func (r *Request) Accept(ctx context.Context, o Config) (*Conn, error) {
	conn, err := r.start(o, nil)
	if err != nil {
		return nil, opError("accept", r.remote.String(), err)
	}
	if err := conn.await(ctx, "REP"); err != nil {
		_ = conn.Close() // busy if Prepare registered memory, which its owner closes
		return nil, opError("accept", r.remote.String(), err)
	}
	return conn, nil
}

// start makes the QP and sends the REP. The connection belongs to l, if that is
// not nil.
func (r *Request) start(o Config, l *Listener) (*Conn, error) {
	if r.datagram {
		return nil, refuse("accept", "request", "for a datagram service", "AcceptDatagram")
	}
	o, err := o.complete(r.l.cm.dev, "accept", ib.RC, ib.UC)
	if err == nil {
		err = r.check(&o)
	}
	var conn *Conn
	if err == nil {
		conn, err = r.l.cm.newConn(&Conn{op: opAccept, local: r.local, remote: r.remote, private: r.private})
	}
	if err != nil {
		r.turnDown(wire.RejectNoResources, nil)
		return nil, err
	}
	reason := wire.RejectNoResources
	if err = conn.open(r.id, &o); err == nil {
		reason = wire.RejectConsumer
		err = conn.prepare(&o)
	}
	if err == nil {
		err = r.answer(func() error { return r.accept(conn, &o, l) })
	}
	if err != nil {
		r.turnDown(reason, nil)
		_ = conn.Close() // busy if Prepare registered memory, which its owner closes
		return nil, err
	}
	return conn, nil
}

// check refuses what this end has not.
func (r *Request) check(o *Config) error {
	switch {
	case r.params.Service != o.Service:
		r.turnDown(wire.RejectInvalidTransport, nil)
		return fmt.Errorf("%w: the peer asks for service %v, this end has %v", errPassed, r.params.Service, o.Service)
	case r.params.PathMTU > o.PathMTU:
		r.turnDown(wire.RejectInvalidMTU, []byte{byte(o.PathMTU.Code())})
		return fmt.Errorf("%w: the peer asks for path MTU %d, this port has %d", errPassed, r.params.PathMTU, o.PathMTU)
	}
	return nil
}

// accept sends the REP once the QP is in RTS: the peer may send as soon as it has
// it.
func (r *Request) accept(conn *Conn, o *Config, l *Listener) error {
	switch {
	case conn.err != nil: // Prepare closed it
		return conn.err
	case l != nil && l.closed:
		return l.errClosed()
	}
	p := o.params(conn.ep.qp.Num())
	params, err := conn.ep.connect(r.id, p)
	if err == nil {
		err = r.id.Accept(p)
	}
	if err != nil {
		return err
	}
	r.answered()
	conn.id, conn.params = r.id, params
	r.l.cm.owners[r.id] = conn
	if l != nil {
		conn.listener = l
		l.shaking = append(l.shaking, conn)
	}
	return nil
}

// AcceptDatagram answers with the UD QP, and returns where to answer the peer: at
// the QP that its datagrams come from. Q_Key 0 stands for that of rdma_cm,
// 0x01234567.
func (r *Request) AcceptDatagram(qp ib.QPN, qkey uint32, private []byte) (ib.AHAttr, error) {
	ah, err := r.acceptDatagram(qp, qkey, private)
	if err != nil {
		return ib.AHAttr{}, opError("accept datagrams of", r.remote.String(), err)
	}
	return ah, nil
}

func (r *Request) acceptDatagram(qp ib.QPN, qkey uint32, private []byte) (ib.AHAttr, error) {
	if !r.datagram {
		return ib.AHAttr{}, refuse("accept", "request", "for a connection", "Accept")
	}
	return r.back, r.answer(func() error {
		err := r.id.Accept(ib.CMConnParam{QPN: qp, QKey: qkey, PrivateData: private})
		if err == nil {
			_ = r.id.Close()
		}
		return err
	})
}

// Reject refuses, as a consumer (reason 28). private is at most 148 bytes, for a
// datagram service 136.
func (r *Request) Reject(private []byte) error {
	err := r.answer(func() error { return r.decline(wire.RejectConsumer, nil, private) })
	if err != nil {
		return opError("reject", r.remote.String(), err)
	}
	return nil
}

// pass refuses a request that nobody has answered. The caller holds CM.mu.
func (r *Request) pass(reason wire.RejectReason) {
	_ = r.decline(reason, nil, nil)
	delete(r.l.cm.owners, r.id)
	r.end(fmt.Errorf("%w: there were too many requests", errPassed))
}

// turnDown refuses for a reason of ours, if nobody has answered yet.
func (r *Request) turnDown(reason wire.RejectReason, info []byte) {
	_ = r.answer(func() error { return r.decline(reason, info, nil) })
}

// decline refuses. A datagram service does so with a status, which the reason stands for. A
// device that cannot send the reason refuses as a consumer.
func (r *Request) decline(reason wire.RejectReason, info, private []byte) error {
	err := r.id.Reject(ib.CMReject{Reason: uint16(reason), Info: info, PrivateData: private})
	if errors.Is(err, ib.ErrNotSupported) {
		err = r.id.Reject(ib.CMReject{PrivateData: private})
	}
	if err == nil {
		_ = r.id.Close()
	}
	return err
}

// Delay tells the peer that the answer will take up to d. The peer of a datagram
// service cannot be told.
func (r *Request) Delay(d time.Duration) error {
	err := r.l.cm.input(func() error {
		if r.gone != nil {
			return r.gone
		}
		return r.id.Delay(d)
	})
	if err != nil {
		return opError("delay", r.remote.String(), err)
	}
	return nil
}

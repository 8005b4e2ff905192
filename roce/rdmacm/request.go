package rdmacm

import (
	"bytes"
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
	id            cm.ID
	datagram      bool
	path          cm.Path // the way back
	local, remote netip.AddrPort
	private       []byte
	params        cm.ConnParams
	gone          error // why it cannot be answered; guarded by CM.mu
}

func newRequest(l *Listener, ev *cm.Event) *Request {
	r := &Request{l: l, id: ev.ID, datagram: ev.Datagram, path: ev.Path, private: bytes.Clone(ev.PrivateData), params: ev.Conn}
	r.local = netip.AddrPortFrom(ev.Path.Local.Addr(), l.addr.Port())
	r.remote = netip.AddrPortFrom(ev.Path.Remote.Addr(), 0)
	if ev.HasHeader {
		r.local = netip.AddrPortFrom(ev.Header.Dst.Addr(), l.addr.Port())
		r.remote = netip.AddrPortFrom(ev.Header.Src.Addr(), ev.Header.SrcPort)
	}
	return r
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
func (r *Request) event(*cm.Event) {
	if r.l.closed {
		r.end(r.l.errClosed())
	} else {
		r.end(fmt.Errorf("%w: the peer gave up, or there were too many requests", errPassed))
	}
}

// end lets the request be unanswerable.
func (r *Request) end(err error) {
	if r.gone != nil {
		return
	}
	r.gone = err
	r.l.requests = slices.DeleteFunc(r.l.requests, func(q *Request) bool { return q == r })
}

// answer runs f, which answers, unless somebody has.
func (r *Request) answer(f func(now ib.Instant) error) error {
	c := r.l.cm
	return c.input(func(now ib.Instant) error {
		if r.gone != nil {
			return r.gone
		}
		err := f(now)
		if err == nil {
			r.answered()
		}
		return err
	})
}

// answered takes the request out of the state machine's sight.
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
		conn, err = r.l.cm.newConn(&Conn{op: "accept", local: r.local, remote: r.remote, path: r.path, private: r.private})
	}
	if err != nil {
		r.turnDown(wire.RejectNoResources, nil)
		return nil, err
	}
	reason := wire.RejectNoResources
	if err = conn.open(&o); err == nil {
		reason = wire.RejectConsumer
		err = conn.prepare(&o)
	}
	if err == nil {
		err = r.answer(func(now ib.Instant) error { return r.accept(now, conn, &o, l) })
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
func (r *Request) accept(now ib.Instant, conn *Conn, o *Config, l *Listener) error {
	c := r.l.cm
	switch {
	case conn.err != nil: // Prepare closed it
		return conn.err
	case l != nil && l.closed:
		return l.errClosed()
	}
	params, err := c.m.Accept(now, r.id, o.params(conn.ep.qp.Num()))
	if err != nil {
		return err
	}
	r.answered()
	conn.params = params
	if err := conn.ep.connect(&conn.path, &params); err != nil {
		for c.m.NextMessage(&c.gsi.msg) { // the REP, which the peer must not see
		}
		c.m.Release(now, r.id)
		return err
	}
	conn.id = r.id
	c.owners[r.id] = conn
	if l != nil {
		conn.listener = l
		l.shaking[conn] = struct{}{}
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
	ah, err := addressVector(r.l.cm.dev, &r.path)
	if err != nil {
		return ah, err
	}
	if qkey == 0 {
		qkey = DefaultQKey
	}
	return ah, r.answer(func(now ib.Instant) error {
		return r.l.cm.m.Answer(now, r.id, cm.Answer{Status: wire.SIDRValid, QPN: qp, QKey: qkey, PrivateData: private})
	})
}

// Reject refuses, as a consumer (reason 28). private is at most 148 bytes, for a
// datagram service 136.
func (r *Request) Reject(private []byte) error {
	err := r.answer(func(now ib.Instant) error {
		return r.decline(now, wire.RejectConsumer, wire.SIDRReject, nil, private)
	})
	if err != nil {
		return opError("reject", r.remote.String(), err)
	}
	return nil
}

// turnDown refuses for a reason of ours, if nobody has answered yet.
func (r *Request) turnDown(reason wire.RejectReason, info []byte) {
	_ = r.answer(func(now ib.Instant) error { return r.decline(now, reason, wire.SIDRNoQP, info, nil) })
}

// decline refuses a connection with a reason, a datagram service with a status.
func (r *Request) decline(now ib.Instant, reason wire.RejectReason, status wire.SIDRStatus, info, private []byte) error {
	m := r.l.cm.m
	if r.datagram {
		return m.Answer(now, r.id, cm.Answer{Status: status, Info: info, PrivateData: private})
	}
	return m.Reject(now, r.id, reason, info, private)
}

// Delay tells the peer that the answer will take up to d. The peer of a datagram
// service cannot be told.
func (r *Request) Delay(d time.Duration) error {
	c := r.l.cm
	err := c.input(func(now ib.Instant) error {
		if r.gone != nil {
			return r.gone
		}
		return c.m.Delay(now, r.id, ib.Instant(d))
	})
	if err != nil {
		return opError("delay", r.remote.String(), err)
	}
	return nil
}

package rdmacm

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/goroce/goroce/ib"
)

// ErrPeer marks failures of Request.Accept that are the peer's: it has given up, or asks for something that the
// listener does not provide. Listener.Accept skips such requests.
var ErrPeer = errors.New("the peer's request cannot be met")

// ErrPathMTU marks those failures with ErrPeer where the peer asks for a path MTU above Config.PathMTU. The REJ names
// the one that this end takes, and peers with the connection manager of Linux or of goroce ask again for that.
var ErrPathMTU = errors.New("path MTU")

// Request is a peer's request for a connection, or for a datagram service. It must be answered once, by Accept,
// AcceptDatagram or Reject, from any goroutine.
type Request struct {
	l             *Listener
	id            ib.CMID
	service       ib.QPType
	back          ib.AHAttr // of a datagram service: the address vector of the peer
	local, remote netip.AddrPort
	private       []byte
	attr          ib.QPAttr
	gone          error // why it cannot be answered any more; guarded by CM.mu
}

func newRequest(l *Listener, ev *ib.CMEvent) (*Request, error) {
	r := &Request{l: l, id: ev.ID, back: ev.AH, private: ev.Param.PrivateData}
	q, err := r.id.Query()
	if err != nil {
		return nil, err
	}
	r.service, r.local, r.remote = q.Type, q.Local, q.Remote
	if r.service != ib.UD {
		if r.attr, _, err = r.id.InitQPAttr(ib.StateRTS); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// LocalAddr returns the address that the peer has connected to.
func (r *Request) LocalAddr() netip.AddrPort { return r.local }

// RemoteAddr returns the peer's address and port. The port is 0 if the peer does not tell it, as without rdma_cm.
func (r *Request) RemoteAddr() netip.AddrPort { return r.remote }

// PrivateData returns the peer's private data: the whole field of the message, as with librdmacm.
func (r *Request) PrivateData() []byte { return r.private }

// Service returns what the peer asks for: a connection of type RC or UC, or a datagram service, UD.
func (r *Request) Service() ib.QPType { return r.service }

// QPAttr returns the attributes that a QP would have in RTS if this end gave the peer all that it asks for:
// MaxDestRdAtomic is how many READs and atomics the peer wants to have outstanding. They are zero for a datagram
// service.
func (r *Request) QPAttr() ib.QPAttr { return r.attr }

// event handles the end of a request that was not answered.
func (r *Request) event(ev *ib.CMEvent) {
	if lastEvent(ev.Type) {
		_ = r.id.Close()
		r.end(fmt.Errorf("%w: the peer gave up, or there were too many requests", ErrPeer))
	}
}

// end makes the request fail all further answers with err.
func (r *Request) end(err error) {
	if r.gone != nil {
		return
	}
	r.gone = err
	delete(r.l.open, r)
	r.l.requests = slices.DeleteFunc(r.l.requests, func(q *Request) bool { return q == r })
}

// answer calls f to answer the request, unless it has been answered or has ended.
func (r *Request) answer(f func() error) error {
	return r.l.cm.whileOpen(func() error {
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

// answered records that the request has been answered.
func (r *Request) answered() {
	if c := r.l.cm; c.owners[r.id] == owner(r) {
		delete(c.owners, r.id)
	}
	r.end(fmt.Errorf("request of %v: answered: %w", r.remote, ib.ErrState))
}

// Accept accepts the request, and waits until the peer has confirmed. If Accept fails, the request is rejected.
func (r *Request) Accept(ctx context.Context, o Config) (*Conn, error) {
	conn, err := r.start(o, nil)
	if err != nil {
		return nil, opError("accept", r.remote.String(), err)
	}
	if err := conn.await(ctx, "REP"); err != nil {
		_ = conn.Close() // fails with ib.ErrBusy if Prepare registered memory; its owner closes it
		return nil, opError("accept", r.remote.String(), err)
	}
	return conn, nil
}

// start creates the QP and sends the REP. The connection belongs to l, if l is not nil.
func (r *Request) start(o Config, l *Listener) (*Conn, error) {
	if r.service == ib.UD {
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
		r.rejectUnanswered(ib.RejectNoResources, nil)
		return nil, err
	}
	reason := ib.RejectNoResources
	if err = conn.open(r.id, &o); err == nil {
		reason = ib.RejectConsumer
		err = conn.prepare(&o)
	}
	if err == nil {
		err = r.answer(func() error { return r.accept(conn, &o, l) })
	}
	if err != nil {
		r.rejectUnanswered(reason, nil)
		_ = conn.Close() // fails with ib.ErrBusy if Prepare registered memory; its owner closes it
		return nil, err
	}
	return conn, nil
}

// check refuses a request that needs more than this end can provide.
func (r *Request) check(o *Config) error {
	switch {
	case r.service != o.Service:
		r.rejectUnanswered(ib.RejectInvalidTransport, nil)
		return fmt.Errorf("%w: the peer asks for service %v, this end has %v", ErrPeer, r.service, o.Service)
	case r.attr.PathMTU > o.PathMTU:
		r.rejectUnanswered(ib.RejectInvalidMTU, []byte{byte(o.PathMTU.Code())})
		return fmt.Errorf("%w: the peer asks for %w %d, this end takes %d at most", ErrPeer, ErrPathMTU,
			r.attr.PathMTU, o.PathMTU)
	}
	return nil
}

// accept takes the QP to RTS and then sends the REP: the peer may send as soon as it has the REP.
func (r *Request) accept(conn *Conn, o *Config, l *Listener) error {
	switch {
	case conn.err != nil: // Prepare has closed it
		return conn.err
	case l != nil && l.closed:
		return l.errClosed()
	}
	attr, err := conn.ep.connect(r.id)
	if err == nil {
		p := o.params(conn.ep.qp.Num())
		p.ResponderResources, p.InitiatorDepth = uint8(attr.MaxDestRdAtomic), uint8(attr.MaxRdAtomic)
		err = r.id.Accept(p)
	}
	if err != nil {
		return err
	}
	r.answered()
	conn.id, conn.attr = r.id, attr
	r.l.cm.owners[r.id] = conn
	if l != nil {
		conn.listener = l
		l.handshakes = append(l.handshakes, conn)
	}
	return nil
}

// AcceptDatagram answers with the number of a UD QP. It returns the address vector of the peer; the peer's QP number is
// known from the source of its datagrams. Q_Key 0 stands for that of rdma_cm, 0x01234567.
func (r *Request) AcceptDatagram(qp ib.QPN, qkey uint32, private []byte) (ib.AHAttr, error) {
	ah, err := r.acceptDatagram(qp, qkey, private)
	if err != nil {
		return ib.AHAttr{}, opError("accept datagrams of", r.remote.String(), err)
	}
	return ah, nil
}

func (r *Request) acceptDatagram(qp ib.QPN, qkey uint32, private []byte) (ib.AHAttr, error) {
	if r.service != ib.UD {
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

// Reject rejects the request with reason 28, consumer reject (IBTA 12.6.7.2). private is at most 148 bytes, for a
// datagram service 136.
func (r *Request) Reject(private []byte) error {
	err := r.answer(func() error { return r.reject(ib.RejectConsumer, nil, private) })
	if err != nil {
		return opError("reject", r.remote.String(), err)
	}
	return nil
}

// rejectOverflow rejects a request because there are too many. The caller holds CM.mu.
func (r *Request) rejectOverflow(reason ib.RejectReason) {
	_ = r.reject(reason, nil, nil)
	delete(r.l.cm.owners, r.id)
	r.end(fmt.Errorf("%w: there were too many requests", ErrPeer))
}

// rejectUnanswered rejects the request for a reason of this package, unless it has been answered.
func (r *Request) rejectUnanswered(reason ib.RejectReason, info []byte) {
	_ = r.answer(func() error { return r.reject(reason, info, nil) })
}

// reject sends the REJ. For a datagram service it is a SIDR_REP with the status that the reason stands for. A device
// that cannot send the reason sends that of a consumer (28).
func (r *Request) reject(reason ib.RejectReason, info, private []byte) error {
	err := r.id.Reject(ib.CMReject{Reason: reason, Info: info, PrivateData: private})
	if errors.Is(err, ib.ErrNotSupported) {
		err = r.id.Reject(ib.CMReject{PrivateData: private})
	}
	if err == nil {
		_ = r.id.Close()
	}
	return err
}

// Delay tells the peer that the answer will take up to d (a MRA, IBTA 12.6.6). A datagram service has no such message.
func (r *Request) Delay(d time.Duration) error {
	err := r.l.cm.whileOpen(func() error {
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

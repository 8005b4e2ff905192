package cm

import (
	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/wire"
)

// request takes a REQ that is new.
func request(m *Manager, _ *conn, in *input) {
	req := &in.req
	qp := qpKey{req.QPN, req.CAGUID, in.path.Remote}
	if old := m.byQP[qp]; old != nil {
		// The peer has forgotten the connection that its QP had (IBTA 12.9.8.3.1,
		// Linux's cm_match_req). In timewait the QP's number is free again, as in
		// Linux's cm_enter_timewait.
		m.stats.Stale++
		m.rejectREQ(in, wire.RejectStale, nil)
		m.do(old, onStale, in)
		return
	}
	listener, ok := m.listener(req.ServiceID, in.path.Local, false)
	if !ok {
		m.stats.NoListener++
		m.rejectREQ(in, wire.RejectInvalidServiceID, nil)
		return
	}
	e := Event{Kind: Request, Listener: listener, PrivateData: req.PrivateData}
	if reason, info := objection(in, &e); reason != 0 {
		m.stats.Refused++
		m.rejectREQ(in, reason, info)
		return
	}
	if !m.makeRoom(in.path.Remote) {
		m.stats.NoResources++
		m.rejectREQ(in, wire.RejectNoResources, nil)
		return
	}
	// What the peer has for its packets holds for ours (Linux's cm_req_handler).
	c := m.add(Path{Local: in.path.Local, Remote: in.path.Remote, FlowLabel: req.Primary.FlowLabel,
		TrafficClass: req.Primary.TrafficClass, HopLimit: req.Primary.HopLimit})
	c.listener, c.tid = listener, in.hdr.TID
	c.params = paramsOf(req)
	c.params.RQPSN = m.newPSN() // now, for the consumer sets its QP before it accepts
	m.knows(c, in.reqKey(), qp)
	m.enter(c, reqRcvd, in.now+m.life(req))
	e.Path, e.Conn, e.SRQ, e.PrivateData = c.path, c.params, req.SRQ, clone(e.PrivateData)
	m.raise(c, e)
}

// objection returns why a REQ cannot be taken, 0 if it can, and what the REJ's
// additional information says. It fills in the header of e and takes it off the
// private data.
func objection(in *input, e *Event) (wire.RejectReason, []byte) {
	req := &in.req
	switch {
	case req.Transport != wire.CMTransportRC && req.Transport != wire.CMTransportUC:
		return wire.RejectInvalidTransport, nil
	case req.QPN <= ib.QPNGSI || req.QPN == ib.QPNMulticast:
		return wire.RejectUnsupported, nil
	case req.PathMTU == 0:
		return wire.RejectInvalidMTU, nil
	case req.Primary.RemoteGID != in.path.Local:
		return wire.RejectInvalidGID, in.path.Local[:]
	}
	if err := e.takeHeader(req.ServiceID); err != nil {
		// Linux's cma_ib_req_handler fails then, which makes a consumer's reject.
		return wire.RejectConsumer, nil
	}
	if e.HasHeader && e.Header.Dst != in.path.Local {
		return wire.RejectInvalidGID, in.path.Local[:]
	}
	return 0, nil
}

// takeHeader moves the rdma_cm header out of the private data, if the service ID
// says that there is one.
func (e *Event) takeHeader(service uint64) error {
	if _, _, ok := wire.SplitServiceID(service); !ok {
		return nil
	}
	if err := e.Header.Decode(e.PrivateData); err != nil {
		return err
	}
	e.HasHeader, e.PrivateData = true, e.PrivateData[wire.CMHeaderLen:]
	return nil
}

// paramsOf returns what a REQ says, from our side: responder resources and
// initiator depth change places, and its first PSN is the first that we send.
func paramsOf(req *wire.REQ) ConnParams {
	p := ConnParams{RemoteQPN: req.QPN, SQPSN: req.StartingPSN, Service: ib.RC, PathMTU: req.PathMTU,
		ResponderResources: req.InitiatorDepth, InitiatorDepth: req.ResponderResources,
		AckTimeout: req.Primary.AckTimeout, RetryCount: req.RetryCount, RNRRetry: req.RNRRetry}
	if req.Transport == wire.CMTransportUC {
		p.Service = ib.UC
	}
	return p
}

// life is how long a request is worth an answer: until its sender's tries are over.
func (m *Manager) life(req *wire.REQ) ib.Instant {
	return min(timeoutOf(req.RemoteResponseTimeout)*ib.Instant(req.MaxCMRetries+1), m.opts.RequestLife)
}

// Accept answers a Request with a REP. The QP must be in RTS by then, with what the Request
// said and what is returned: the peer may send as soon as it has the REP. Private data may
// have 196 bytes. The peer gets no more of responder resources and initiator depth than it
// asked for.
func (m *Manager) Accept(now ib.Instant, id ID, p Params) (ConnParams, error) {
	c, err := m.get("accept", id, mayAccept)
	if err != nil {
		return ConnParams{}, err
	}
	if err := checkLen("accept", "private data", p.PrivateData, wire.REPPrivateLen); err != nil {
		return ConnParams{}, err
	}
	c.localQPN = p.QPN
	q := &c.params
	q.ResponderResources = min(q.ResponderResources, p.ResponderResources)
	q.InitiatorDepth = min(q.InitiatorDepth, p.InitiatorDepth)
	c.compose(wire.AttrREP, c.tid, &wire.REP{
		LocalID: uint32(c.id), RemoteID: c.remote.id, QPN: p.QPN, StartingPSN: q.RQPSN,
		ResponderResources: q.ResponderResources, InitiatorDepth: q.InitiatorDepth,
		TargetACKDelay: ackDelay, RNRRetry: p.RNRRetry, SRQ: p.SRQ, CAGUID: m.opts.GUID, PrivateData: p.PrivateData,
	})
	m.await(c, repSent, now)
	return *q, nil
}

// ready takes the RTU.
func ready(m *Manager, c *conn, in *input) {
	m.raise(c, Event{Kind: Established, Conn: c.params, PrivateData: clone(in.rtu.PrivateData)})
	m.enter(c, established, ib.Never)
}

// DataArrived says that the first packet came over the accepted connection: the
// RTU must have been lost (IBTA 12.9.6). It raises Established, without private
// data.
func (m *Manager) DataArrived(now ib.Instant, id ID) {
	if c := m.conns[id]; c != nil && mayDataArrived.has(c.state) {
		m.raise(c, Event{Kind: Established, Conn: c.params})
		m.enter(c, established, ib.Never)
	}
}

// withdrawn takes the REJ of a peer that does not wait for our answer any more.
func withdrawn(m *Manager, c *conn, in *input) {
	m.fail(c, Event{Kind: Dropped, Reason: in.rej.Reason})
}

// superseded ends a request whose peer begins anew with the same QP before it has
// an answer.
func superseded(m *Manager, c *conn, _ *input) {
	m.fail(c, Event{Kind: Dropped})
}

// lapsed ends a request that nobody answered: its sender has given up by now.
func lapsed(m *Manager, c *conn, _ *input) {
	m.stats.Lapsed++
	m.fail(c, Event{Kind: Dropped})
}

// noRTU gives up.
func noRTU(m *Manager, c *conn, _ *input) {
	m.sayTimeout(c)
	m.fail(c, Event{Kind: Unreachable, Waited: "REP", Sent: c.sent})
}

// decline ends what the consumer does not want to go on with.
func decline(m *Manager, c *conn, _ *input) {
	m.refuse(c, wire.RejectConsumer, nil, nil)
	m.forget(c)
}

// refuseStale answers the copy of a REQ whose connection is over: it must not
// make another one.
func refuseStale(m *Manager, _ *conn, in *input) {
	m.stats.Duplicates++
	m.rejectREQ(in, wire.RejectStale, nil)
}

// clone copies data of a message for an event.
func clone(b []byte) []byte { return append([]byte(nil), b...) }

package cm

import (
	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/ib/driver"
	"github.com/goroce/goroce/wire"
)

// handleREQ handles a REQ without a connection (IBTA 12.9.7.2): it answers a copy of one that was rejected as before,
// rejects a new one, or creates a connection in REQ RCVD and raises Request.
func handleREQ(m *Manager, _ *conn, in *input) {
	req := &in.req
	if m.answerAgain(in, in.reqKey()) {
		return
	}
	qp := qpKey{req.QPN, req.CAGUID, in.path.Remote}
	if old := m.byQP[qp]; old != nil {
		// The peer has forgotten the connection that its QP had (IBTA 12.9.8.3.1, Linux's cm_match_req). A QP whose
		// connection is in timewait may be used again, as in Linux's cm_enter_timewait.
		m.stats.Stale++
		m.rejectREQ(in, ib.RejectStale, nil)
		m.dispatch(old, onStale, in)
		return
	}
	l := m.listener(req.ServiceID, in.path.Local, false)
	if l == nil {
		m.stats.NoListener++
		m.reply(in, wire.AttrREJ, &wire.REJ{RemoteID: req.LocalID, Message: wire.MessageREQ,
			Reason: ib.RejectInvalidServiceID, PrivateData: m.echo(in)})
		return
	}
	e := Event{Kind: Request, Listener: l.id, PrivateData: req.PrivateData}
	if reason, info := m.checkREQ(in, &e); reason != 0 {
		m.stats.Refused++
		m.rejectREQ(in, reason, info)
		return
	}
	if !m.makeRoom(in.path.Remote) {
		m.stats.NoResources++
		m.rejectREQ(in, ib.RejectNoResources, nil)
		return
	}
	// Flow label, traffic class and hop limit of the peer's packets are used for ours, too (Linux's cm_req_handler).
	c := m.add(Path{Local: in.path.Local, Remote: in.path.Remote, FlowLabel: req.Primary.FlowLabel,
		TrafficClass: req.Primary.TrafficClass, HopLimit: req.Primary.HopLimit})
	c.tid = in.hdr.TID
	c.attach(l)
	c.params = paramsOf(req)
	c.params.RQPSN = m.newPSN() // now, because the consumer needs it for its QP before it accepts
	m.setPeer(c, in.reqKey(), qp)
	m.setState(c, reqRcvd, in.now+m.requestLife(req))
	e.Path, e.Conn, e.SRQ, e.PrivateData = c.path, c.params, req.SRQ, clone(e.PrivateData)
	m.raise(c, e)
}

// checkREQ returns the reason to reject a REQ, 0 if there is none, and the REJ's additional information (IBTA
// 12.6.7.2). It moves the rdma_cm header from the private data of e to e.Header.
func (m *Manager) checkREQ(in *input, e *Event) (ib.RejectReason, []byte) {
	req, most := &in.req, m.mostMTU(in.path)
	switch {
	case req.Transport != wire.CMTransportRC && req.Transport != wire.CMTransportUC:
		return ib.RejectInvalidTransport, nil
	case req.QPN <= ib.QPNGSI || req.QPN == ib.QPNMulticast:
		return ib.RejectUnsupported, nil
	case req.PathMTU == 0 || req.PathMTU > most:
		return ib.RejectInvalidMTU, []byte{byte(most.Code())}
	case req.Primary.RemoteGID != in.path.Local:
		return ib.RejectInvalidGID, in.path.Local[:]
	}
	if err := e.takeHeader(req.ServiceID); err != nil {
		// Linux's cma_ib_req_handler fails here, and the REJ then has the reason "consumer reject".
		return ib.RejectConsumer, nil
	}
	if e.HasHeader && e.Header.Dst != in.path.Local {
		return ib.RejectInvalidGID, in.path.Local[:]
	}
	return 0, nil
}

// mostMTU returns the largest path MTU that a connection over a path may have.
func (m *Manager) mostMTU(p Path) ib.MTU {
	if m.opts.PathMTU == nil {
		return ib.MTU4096
	}
	return m.opts.PathMTU(p)
}

// takeHeader moves the rdma_cm header out of the private data, if the service ID is one of rdma_cm.
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

// paramsOf returns the contents of a REQ from this end's point of view: responder resources and initiator depth change
// places, and the starting PSN of the REQ is the one that this end starts to send with.
func paramsOf(req *wire.REQ) ConnParams {
	p := ConnParams{RemoteQPN: req.QPN, SQPSN: req.StartingPSN, Service: ib.RC, PathMTU: req.PathMTU,
		ResponderResources: req.InitiatorDepth, InitiatorDepth: req.ResponderResources,
		AckTimeout: req.Primary.AckTimeout, RetryCount: req.RetryCount, RNRRetry: req.RNRRetry}
	if req.Transport == wire.CMTransportUC {
		p.Service = ib.UC
	}
	return p
}

// requestLife returns how long it makes sense to answer a request: until its sender has given up.
func (m *Manager) requestLife(req *wire.REQ) ib.Instant {
	return min(timeoutOf(req.RemoteResponseTimeout)*ib.Instant(req.MaxCMRetries+1), m.opts.RequestLife)
}

// Accept answers a Request with a REP (IBTA 12.6.8) and returns the parameters of the connection. Take the QP to RTS
// before NextMessage takes the REP: the peer may send as soon as it has the REP. Private data may have 196 bytes.
// Responder resources and initiator depth become the connection's, whatever the peer has asked for, as in Linux
// (ib_send_cm_rep).
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
	q.ResponderResources, q.InitiatorDepth = p.ResponderResources, p.InitiatorDepth
	c.compose(wire.AttrREP, c.tid, &wire.REP{
		LocalID: uint32(c.id), RemoteID: c.remote.id, QPN: p.QPN, StartingPSN: q.RQPSN,
		ResponderResources: q.ResponderResources, InitiatorDepth: q.InitiatorDepth,
		TargetACKDelay: ackDelay, RNRRetry: p.RNRRetry, SRQ: p.SRQ, CAGUID: m.opts.GUID, PrivateData: p.PrivateData,
	})
	m.await(c, repSent, now)
	return *q, nil
}

// handleRTU completes the handshake of the passive end.
func handleRTU(m *Manager, c *conn, in *input) {
	m.raise(c, Event{Kind: Established, Conn: c.params, PrivateData: clone(in.rtu.PrivateData)})
	m.setState(c, established, driver.Never)
}

// DataArrived says that the first packet has arrived on an accepted connection, so the RTU must have been lost (IBTA
// 12.9.6). It raises Established, without private data.
func (m *Manager) DataArrived(now ib.Instant, id ID) {
	if c := m.conns[id]; c != nil && mayDataArrived.has(c.state) {
		m.raise(c, Event{Kind: Established, Conn: c.params})
		m.setState(c, established, driver.Never)
	}
}

// withdrawn handles the REJ of a peer that does not wait for our answer any more.
func withdrawn(m *Manager, c *conn, in *input) {
	m.fail(c, Event{Kind: Dropped, Reason: in.rej.Reason})
}

// superseded ends an unanswered request whose peer has begun a new connection with the same QP.
func superseded(m *Manager, c *conn, _ *input) {
	m.fail(c, Event{Kind: Dropped})
}

// lapsed ends a request that the consumer did not answer in time: its sender has given up by now.
func lapsed(m *Manager, c *conn, _ *input) {
	m.stats.Lapsed++
	m.fail(c, Event{Kind: Dropped})
}

// noRTU ends a connection whose REPs got no RTU.
func noRTU(m *Manager, c *conn, _ *input) {
	m.rejectTimeout(c)
	m.fail(c, Event{Kind: Unreachable, Waited: "REP", Sent: c.sent})
}

// decline rejects what the consumer has released before the handshake was over.
func decline(m *Manager, c *conn, _ *input) {
	m.reject(c, ib.RejectConsumer, nil, nil)
	m.forget(c)
}

// refuseStale answers a repeated REQ whose connection has ended already. It must not create another connection.
func refuseStale(m *Manager, _ *conn, in *input) {
	m.stats.Duplicates++
	m.rejectREQ(in, ib.RejectStale, nil)
}

// clone copies data out of a received message, so that an event may keep it.
func clone(b []byte) []byte { return append([]byte(nil), b...) }

package cm

import (
	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/wire"
)

// Resolve sends a SIDR_REQ (IBTA 12.11.2.1) and returns the ID of the resolution. Private data may have 180 bytes where
// the rdma_cm header precedes them (see Connect), 216 otherwise. GiveUp 0 stands for driver.Never.
func (m *Manager) Resolve(now ib.Instant, r Resolve) (ID, error) {
	private, err := privateData("resolve", r.ServiceID, r.Path, r.SrcPort, r.PrivateData, wire.SIDRREQPrivateLen)
	if err != nil {
		return 0, err
	}
	if !m.roomForID() {
		return 0, m.errLimit("resolve")
	}
	c := m.add(r.Path)
	c.tid = m.rng.Uint64()
	c.path.HopLimit = hopLimit(r.Path)
	if r.GiveUp > 0 {
		c.giveUp = r.GiveUp
	}
	c.compose(wire.AttrSIDRREQ, c.tid, &wire.SIDRREQ{RequestID: uint32(c.id), PKey: ib.DefaultPKey,
		ServiceID: r.ServiceID, PrivateData: private})
	m.await(c, sidrReqSent, now)
	return c.id, nil
}

// handleSIDRREQ handles a new SIDR_REQ: it creates a connection in SIDR REQ RCVD and raises Request.
func handleSIDRREQ(m *Manager, _ *conn, in *input) {
	req := &in.sidrReq
	if m.answerAgain(in, in.sidrKey()) {
		return
	}
	l := m.listener(req.ServiceID, in.path.Local, true)
	if l == nil {
		m.stats.NoListener++
		m.rejectSIDR(in, ib.SIDRUnsupported)
		return
	}
	e := Event{Kind: Request, Datagram: true, Listener: l.id, PrivateData: req.PrivateData}
	if err := e.takeHeader(req.ServiceID); err != nil || e.HasHeader && e.Header.Dst != in.path.Local {
		m.stats.Refused++
		m.rejectSIDR(in, ib.SIDRReject)
		return
	}
	if !m.makeRoom(in.path.Remote) {
		m.stats.NoResources++
		m.rejectSIDR(in, ib.SIDRNoQP)
		return
	}
	c := m.add(in.path)
	c.path.HopLimit = 0 // use the default, as reply does
	c.tid, c.service = in.hdr.TID, req.ServiceID
	c.attach(l)
	c.remote = in.sidrKey()
	m.byRemote[c.remote] = c
	m.setState(c, sidrReqRcvd, in.now+m.opts.RequestLife)
	e.Path, e.PrivateData = c.path, clone(e.PrivateData)
	m.raise(c, e)
}

func (m *Manager) rejectSIDR(in *input, status ib.SIDRStatus) {
	m.reply(in, wire.AttrSIDRREP, &wire.SIDRREP{RequestID: in.sidrReq.RequestID, Status: status,
		ServiceID: in.sidrReq.ServiceID})
}

// Answer answers a Request of a datagram service with a SIDR_REP (IBTA 12.11.2.2). The ID is released at once; copies
// of the SIDR_REQ get the same answer again. Info may have 72 bytes, PrivateData 136.
func (m *Manager) Answer(now ib.Instant, id ID, a Answer) error {
	c, err := m.get("answer", id, mayAnswer)
	if err != nil {
		return err
	}
	if err := checkLen("answer", "info", a.Info, wire.SIDRREPInfoLen); err != nil {
		return err
	}
	if err := checkLen("answer", "private data", a.PrivateData, wire.SIDRREPPrivateLen); err != nil {
		return err
	}
	m.answerSIDR(c, a)
	m.forget(c)
	return nil
}

func (m *Manager) answerSIDR(c *conn, a Answer) {
	m.answer(c, wire.AttrSIDRREP, &wire.SIDRREP{RequestID: c.remote.id, Status: a.Status, QPN: a.QPN,
		ServiceID: c.service, QKey: a.QKey, Info: a.Info, PrivateData: a.PrivateData})
}

// sidrStatusOf maps the reason of a REJ to the status of a SIDR_REP.
func sidrStatusOf(r ib.RejectReason) ib.SIDRStatus {
	switch r {
	case ib.RejectInvalidServiceID:
		return ib.SIDRUnsupported
	case ib.RejectNoResources:
		return ib.SIDRNoQP
	default:
		return ib.SIDRReject
	}
}

// handleSIDRREP handles the answer to our SIDR_REQ.
func handleSIDRREP(m *Manager, c *conn, in *input) {
	rep := &in.sidrRep
	e := Event{Kind: Resolved, Datagram: true, Info: clone(rep.Info), PrivateData: clone(rep.PrivateData)}
	if rep.Status == ib.SIDRValid {
		e.QKey, e.Conn.RemoteQPN = rep.QKey, rep.QPN
	} else {
		e.Kind, e.Status = Rejected, rep.Status
	}
	m.fail(c, e)
}

// noSIDRREP ends a resolution whose last SIDR_REQ got no answer.
func noSIDRREP(m *Manager, c *conn, _ *input) {
	m.fail(c, Event{Kind: Unreachable, Datagram: true, Waited: "SIDR_REQ", Sent: c.sent})
}

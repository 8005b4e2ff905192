package cm

import (
	"fmt"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/ib/driver"
	"github.com/goroce/goroce/wire"
)

// Times in our REQs, as 5-bit codes. A Linux peer retransmits its REP after our response timeout (cm_req_handler). With
// 2^16 * 4.096 us = 268 ms a lost REP costs a quarter of a second; with Linux's own value, 20, it would cost 4.3 s.
const (
	remoteResponse = 20
	localResponse  = 16
	cmRetries      = 15
	ackDelay       = 15 // in REPs; rdma_rxe's local_ca_ack_delay (rxe_param.h)

	lidPermissive = 0xFFFF // what Linux sends as LIDs if the hop limit is over 1
)

// DefaultHopLimit is what Path.HopLimit 0 stands for: the default of Linux's routes.
const DefaultHopLimit = 64

// Connect sends a REQ (IBTA 12.6.5). If the service ID is one of rdma_cm (wire.SplitServiceID), the rdma_cm header with
// the addresses precedes the private data, which may then have 56 bytes, otherwise 92. GiveUp 0 stands for
// driver.Never.
func (m *Manager) Connect(now ib.Instant, c Connect) (ID, error) {
	if c.Service != ib.RC && c.Service != ib.UC {
		return 0, driver.Refuse("connect", "Service", c.Service, "RC or UC; Resolve is for datagrams", ib.ErrInvalid)
	}
	private, err := privateData("connect", c.ServiceID, c.Path, c.SrcPort, c.PrivateData, wire.REQPrivateLen)
	if err != nil {
		return 0, err
	}
	if !m.roomForID() {
		return 0, m.errLimit("connect")
	}
	n := m.add(c.Path)
	n.tid, n.localQPN, n.fixedMTU = m.rng.Uint64(), c.QPN, c.FixedMTU
	n.path.HopLimit = hopLimit(c.Path)
	n.params = ConnParams{RQPSN: m.newPSN(), Service: c.Service, PathMTU: c.PathMTU,
		ResponderResources: c.ResponderResources,
		InitiatorDepth:     c.InitiatorDepth, AckTimeout: c.AckTimeout, RetryCount: c.RetryCount, RNRRetry: c.RNRRetry}
	if c.GiveUp > 0 {
		n.giveUp = c.GiveUp
	}
	n.compose(wire.AttrREQ, n.tid, m.req(n, &c, private))
	m.await(n, reqSent, now)
	return n.id, nil
}

func (m *Manager) req(n *conn, c *Connect, private []byte) *wire.REQ {
	req := &wire.REQ{
		LocalID: uint32(n.id), ServiceID: c.ServiceID, CAGUID: m.opts.GUID, QPN: c.QPN,
		ResponderResources: c.ResponderResources, InitiatorDepth: c.InitiatorDepth,
		RemoteResponseTimeout: remoteResponse, LocalResponseTimeout: localResponse, MaxCMRetries: cmRetries,
		Transport: wire.CMTransportRC, StartingPSN: n.params.RQPSN, RetryCount: c.RetryCount, RNRRetry: c.RNRRetry,
		PKey: ib.DefaultPKey, PathMTU: c.PathMTU, SRQ: c.SRQ,
		Primary: wire.CMPath{
			LocalLID: lidPermissive, RemoteLID: lidPermissive, LocalGID: n.path.Local, RemoteGID: n.path.Remote,
			FlowLabel: n.path.FlowLabel, TrafficClass: n.path.TrafficClass, HopLimit: n.path.HopLimit,
			AckTimeout: c.AckTimeout,
		},
		PrivateData: private,
	}
	if c.Service == ib.UC {
		req.Transport = wire.CMTransportUC
	}
	if n.path.HopLimit <= 1 {
		req.Primary.LocalLID, req.Primary.RemoteLID, req.Primary.SubnetLocal = 0, 0, true
	}
	return req
}

func hopLimit(p Path) uint8 {
	if p.HopLimit == 0 {
		return DefaultHopLimit
	}
	return p.HopLimit
}

func (m *Manager) newPSN() ib.PSN { return ib.PSN(m.rng.Uint32()) & ib.PSNMask }

func (m *Manager) errLimit(op string) error {
	return driver.Refuse(op, "IDs", len(m.conns)+1,
		fmt.Sprintf("at most %d, Options.MaxConns; release some", m.opts.MaxConns), ErrLimit)
}

// privateData returns the private data field: the consumer's data, after the rdma_cm header if the service ID is one of
// rdma_cm. The field has room for most bytes.
func privateData(op string, service uint64, p Path, port uint16, data []byte, most int) ([]byte, error) {
	if _, _, ok := wire.SplitServiceID(service); !ok {
		return data, checkLen(op, "private data", data, most)
	}
	if err := checkLen(op, "private data", data, most-wire.CMHeaderLen); err != nil {
		return nil, err
	}
	b := make([]byte, wire.CMHeaderLen, wire.CMHeaderLen+len(data))
	h := wire.CMHeader{Src: p.Local, Dst: p.Remote, SrcPort: port}
	h.Put(b)
	return append(b, data...), nil
}

// handleMRA extends the wait for an answer by the time that a MRA asks for (IBTA 12.6.6), at most maxDelay.
func handleMRA(m *Manager, c *conn, in *input) {
	s, about := mraReqRcvd, wire.MessageREQ
	if c.state == repSent {
		s, about = mraRepRcvd, wire.MessageREP
	}
	if in.mra.Message != about {
		m.stats.Ignored++
		return
	}
	wait := min(timeoutOf(in.mra.ServiceTimeout), maxDelay) + m.interval(c.sent)
	m.setState(c, s, min(in.now+wait, c.giveUp))
}

// handleREP handles the REP to our REQ. If the REP names a peer's QP that has another connection here, that connection
// is stale and ends; this one keeps waiting for a valid REP (IBTA 12.9.8.3.1, Linux's cm_rep_handler). As in Linux the
// depths are those of the REP, even if the REQ has asked for less.
func handleREP(m *Manager, c *conn, in *input) {
	rep := &in.rep
	remote := remoteKey{id: rep.LocalID, guid: rep.CAGUID, gid: in.path.Remote}
	qp := qpKey{rep.QPN, rep.CAGUID, in.path.Remote}
	if m.byRemote[remote] != nil {
		m.stats.Ignored++
		return
	}
	if old := m.byQP[qp]; old != nil {
		m.stats.Stale++
		m.rejectREP(in, ib.RejectStale)
		m.dispatch(old, onStale, in)
		return
	}
	m.setPeer(c, remote, qp)
	p := &c.params
	p.RemoteQPN, p.SQPSN, p.RNRRetry = rep.QPN, rep.StartingPSN, rep.RNRRetry
	p.ResponderResources, p.InitiatorDepth = rep.InitiatorDepth, rep.ResponderResources
	m.raise(c, Event{Kind: Replied, Conn: *p, SRQ: rep.SRQ, PrivateData: clone(rep.PrivateData)})
	m.setState(c, repRcvd, driver.Never)
}

// rejectREP rejects the REP in in, with the communication IDs of the REP.
func (m *Manager) rejectREP(in *input, reason ib.RejectReason) {
	m.reply(in, wire.AttrREJ, &wire.REJ{LocalID: in.rep.RemoteID, RemoteID: in.rep.LocalID, Message: wire.MessageREP,
		Reason: reason})
}

// orphanREP rejects a REP to a REQ that does not exist any more (IBTA 12.6.7.2, reason 6). Linux ignores it, and so the
// peer gives up only after it has sent the REP for the last time.
func orphanREP(m *Manager, _ *conn, in *input) {
	m.stats.UnknownID++
	m.rejectREP(in, ib.RejectInvalidCommID)
}

// Confirm sends the RTU after Replied (IBTA 12.6.9). private may have 224 bytes.
func (m *Manager) Confirm(now ib.Instant, id ID, private []byte) error {
	c, err := m.get("confirm", id, mayConfirm)
	if err != nil {
		return err
	}
	if err := checkLen("confirm", "private data", private, wire.RTUPrivateLen); err != nil {
		return err
	}
	c.compose(wire.AttrRTU, c.tid, &wire.RTU{LocalID: uint32(c.id), RemoteID: c.remote.id, PrivateData: private})
	m.transmit(c)
	m.setState(c, established, driver.Never)
	return nil
}

// repeatRTU answers a repeated REP, whose sender has not got our RTU.
func repeatRTU(m *Manager, c *conn, in *input) {
	if c.lastAttr != wire.AttrRTU { // this end is the passive one: the REQ was the peer's
		m.stats.Ignored++
		return
	}
	repeat(m, c, in)
}

// handleREJ handles a REJ. If our REQ's path MTU was too large, and the peer says which one it takes, a REQ asks for
// that, as the consumer has left the choice to the path. A REJ of an earlier REQ then has another transaction ID.
func handleREJ(m *Manager, c *conn, in *input) {
	if in.rej.Reason == ib.RejectInvalidMTU && peerUnknown.has(c.state) && !c.fixedMTU {
		if in.hdr.TID != c.tid {
			m.stats.Duplicates++
			return
		}
		if mtu := acceptable(&in.rej); mtu != 0 && mtu < c.params.PathMTU {
			m.askAgain(c, mtu, in.now)
			return
		}
	}
	m.fail(c, Event{Kind: Rejected, Reason: in.rej.Reason, Info: clone(in.rej.Info),
		PrivateData: clone(in.rej.PrivateData)})
}

// acceptable returns the path MTU that the sender of a REJ takes; 0 if it does not say.
func acceptable(rej *wire.REJ) ib.MTU {
	if len(rej.Info) == 0 {
		return 0
	}
	return ib.MTUFromCode(int(rej.Info[0]))
}

// askAgain sends the REQ of c for a smaller path MTU, as a new transaction.
func (m *Manager) askAgain(c *conn, mtu ib.MTU, now ib.Instant) {
	var req wire.REQ
	before := c.last // req refers to its private data
	req.Decode(&before)
	req.PathMTU, c.params.PathMTU = mtu, mtu
	c.tid = m.rng.Uint64()
	c.compose(wire.AttrREQ, c.tid, &req)
	m.await(c, reqSent, now)
}

// replaced ends a connection whose peer has begun a new one, with the same QP, before the handshake was over.
func replaced(m *Manager, c *conn, _ *input) {
	m.fail(c, Event{Kind: Rejected, Reason: ib.RejectStale})
}

// noREP ends a connection whose REQs got no answer. A REJ tells a peer that has asked for more time that it need not
// answer any more.
func noREP(m *Manager, c *conn, _ *input) {
	m.rejectTimeout(c)
	m.fail(c, Event{Kind: Unreachable, Waited: "REQ", Sent: c.sent})
}

// lost ends an attempt whose peer cannot be reached. There is nobody to be told.
func lost(m *Manager, c *conn, _ *input) {
	m.fail(c, Event{Kind: Unreachable, Waited: "REQ", Sent: c.sent})
}

// abandon takes the REQ back with a REJ, for the consumer has released the connection (Linux's cm_destroy_id).
func abandon(m *Manager, c *conn, _ *input) {
	m.rejectTimeout(c)
	m.forget(c)
}

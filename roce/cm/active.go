package cm

import (
	"fmt"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/wire"
)

// What our REQs say about times, as 5-bit codes. A Linux peer resends its REP
// after our response timeout (cm_req_handler): 2^16 * 4.096 us are 268 ms, so that
// a REP lost costs a quarter of a second. Linux itself says 20, 4.3 s, both ways.
const (
	remoteResponse = 20
	localResponse  = 16
	cmRetries      = 15
	ackDelay       = 15 // in REPs; rdma_rxe's local_ca_ack_delay (rxe_param.h)

	defaultHopLimit = 64
	lidPermissive   = 0xFFFF // what Linux says for LIDs with a hop limit over 1
)

// Connect sends a REQ. For a service ID of rdma_cm (wire.SplitServiceID) the header
// with the addresses goes before the private data, which may have 56 bytes then, 92
// otherwise. GiveUp 0 stands for ib.Never.
func (m *Manager) Connect(now ib.Instant, c Connect) (ID, error) {
	if c.Service != ib.RC && c.Service != ib.UC {
		return 0, ib.Refuse("connect", "Service", c.Service, "RC or UC; Resolve is for datagrams", ib.ErrInvalid)
	}
	private, err := privateData("connect", c.ServiceID, c.Path, c.SrcPort, c.PrivateData, wire.REQPrivateLen)
	if err != nil {
		return 0, err
	}
	if !m.roomForID() {
		return 0, m.errLimit("connect")
	}
	n := m.add(c.Path)
	n.tid, n.localQPN = m.rng.Uint64(), c.QPN
	n.path.HopLimit = hopLimit(c.Path)
	n.params = ConnParams{RQPSN: m.newPSN(), Service: c.Service, PathMTU: c.PathMTU, ResponderResources: c.ResponderResources,
		InitiatorDepth: c.InitiatorDepth, AckTimeout: c.AckTimeout, RetryCount: c.RetryCount, RNRRetry: c.RNRRetry}
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
			FlowLabel: n.path.FlowLabel, TrafficClass: n.path.TrafficClass, HopLimit: n.path.HopLimit, AckTimeout: c.AckTimeout,
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
		return defaultHopLimit
	}
	return p.HopLimit
}

func (m *Manager) newPSN() ib.PSN { return ib.PSN(m.rng.Uint32()) & ib.PSNMask }

func (m *Manager) errLimit(op string) error {
	return ib.Refuse(op, "IDs", len(m.conns)+1,
		fmt.Sprintf("at most %d, Options.MaxConns; release some", m.opts.MaxConns), ErrLimit)
}

// privateData puts the rdma_cm header before the consumer's data where the service
// ID wants it. The field has most bytes.
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

// longer takes a MRA for what we wait for: the wait goes on for what it says.
func longer(m *Manager, c *conn, in *input) {
	s, about := mraReqRcvd, wire.MessageREQ
	if c.state == repSent {
		s, about = mraRepRcvd, wire.MessageREP
	}
	if in.mra.Message != about {
		m.stats.Ignored++
		return
	}
	wait := min(timeoutOf(in.mra.ServiceTimeout), maxDelay) + m.interval(c.sent)
	m.enter(c, s, min(in.now+wait, c.giveUp))
}

// replied takes the REP. One that names a QP of a connection that is there is
// stale (IBTA 12.9.8.3.1, Linux's cm_rep_handler): that connection ends, and this
// one goes on asking.
func replied(m *Manager, c *conn, in *input) {
	rep := &in.rep
	remote := remoteKey{id: rep.LocalID, guid: rep.CAGUID, gid: in.path.Remote}
	qp := qpKey{rep.QPN, rep.CAGUID, in.path.Remote}
	if m.byRemote[remote] != nil {
		m.stats.Ignored++
		return
	}
	if old := m.byQP[qp]; old != nil {
		m.stats.Stale++
		m.rejectREP(in, wire.RejectStale)
		m.do(old, onStale, in)
		return
	}
	m.knows(c, remote, qp)
	p := &c.params
	p.RemoteQPN, p.SQPSN, p.RNRRetry = rep.QPN, rep.StartingPSN, rep.RNRRetry
	p.ResponderResources = min(p.ResponderResources, rep.InitiatorDepth)
	p.InitiatorDepth = min(p.InitiatorDepth, rep.ResponderResources)
	m.raise(c, Event{Kind: Replied, Conn: *p, SRQ: rep.SRQ, PrivateData: clone(rep.PrivateData)})
	m.enter(c, repRcvd, ib.Never)
}

// rejectREP refuses a REP with the IDs that it has.
func (m *Manager) rejectREP(in *input, reason wire.RejectReason) {
	m.reply(in, wire.AttrREJ, &wire.REJ{LocalID: in.rep.RemoteID, RemoteID: in.rep.LocalID, Message: wire.MessageREP, Reason: reason})
}

// orphanREP refuses a REP to a REQ that is not ours any more (IBTA 12.6.7.2, reason
// 6). Linux lets it be; its own peers give up only after all retries of the REP.
func orphanREP(m *Manager, _ *conn, in *input) {
	m.stats.UnknownID++
	m.rejectREP(in, wire.RejectInvalidCommID)
}

// Confirm sends the RTU after Replied. private may have 224 bytes.
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
	m.enter(c, established, ib.Never)
	return nil
}

// repeatRTU answers a REP that was sent again: the RTU was lost.
func repeatRTU(m *Manager, c *conn, in *input) {
	if c.lastAttr != wire.AttrRTU { // the REQ was the peer's
		m.stats.Ignored++
		return
	}
	repeat(m, c, in)
}

func rejected(m *Manager, c *conn, in *input) {
	m.fail(c, Event{Kind: Rejected, Reason: in.rej.Reason, Info: clone(in.rej.Info), PrivateData: clone(in.rej.PrivateData)})
}

// replaced ends a connection whose peer begins anew before the handshake is over.
func replaced(m *Manager, c *conn, _ *input) {
	m.fail(c, Event{Kind: Rejected, Reason: wire.RejectStale})
}

// noREP gives up. A peer that thinks about the request need not any more.
func noREP(m *Manager, c *conn, _ *input) {
	m.sayTimeout(c)
	m.fail(c, Event{Kind: Unreachable, Waited: "REQ", Sent: c.sent})
}

// abandon takes the REQ back (Linux's cm_destroy_id).
func abandon(m *Manager, c *conn, _ *input) {
	m.sayTimeout(c)
	m.forget(c)
}

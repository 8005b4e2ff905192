package roce

import (
	"slices"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/wire"
)

// A port has one general services QP on the wire, number 1 (IBTA 3.9.6). Here
// several applications may have one each, with a connection manager behind it that
// knows nothing of the others; in Linux the kernel's MAD layer and its one connection
// manager stand there. All send as QP 1. Who gets what arrives for QP 1 is told by the
// message, if there are several:
//
//	REQ, SIDR_REQ           the QP that serves the service ID at this address; a copy:
//	                        the QP that has the first
//	REP, RTU, DREQ, DREP,   the QP that has sent a message with this Remote Comm ID as
//	MRA, REJ, LAP, APR      its Local Comm ID to the sender's GID
//	REJ without Remote ID   the QP that has got the request which the Local Comm ID names
//	SIDR_REP                the QP that has sent the SIDR_REQ with this Request ID
//	all else                the first QP that receives, which answers as for unknown
//	                        IDs: REJ with reason 8 to a request, DREP to a DREQ
//
// Communication IDs are learned from what leaves and requests from what arrives, also
// while there is one QP: a second may come. gsi_ids.go has the table, gsi_services.go
// the service IDs.
//
// The IDs of a port are one space for its peers, who know a connection by GID, GUID and
// ID alone. So the first QP that uses an ID toward a GID has it, until the connection
// is over, and only the QP that has got a request may answer it. A message that
// breaks this does not leave, and is counted (Stats.DropSpoofedID): two managers that
// choose the same ID by chance are kept apart in this way, and one that lies cannot end
// or take over another's connections. For the same reason no REQ or REP may name another
// tenant's QP, whose connections a peer would take for stale (IBTA 12.9.8.3.1), and
// tenants send to QP 1 from their general services QPs only. A tenant accepts requests for
// services that it has announced: what nobody serves it may have got, and can only refuse.
// Its own requests come from an address of the device, also by what they say.

// gsiTable is the general services QPs of a port. It is on the first shard, and
// guarded by its mu.
type gsiTable struct {
	shard    *shard
	qps      []*QP // oldest first
	ids      idTable
	services serviceTable
}

var _ ib.ServiceQP = (*QP)(nil)

func (g *gsiTable) init(s *shard) {
	g.shard = s
	g.ids.init(&s.stats.GSIForgotten)
	g.services.init()
}

func (g *gsiTable) add(q *QP) { g.qps = append(g.qps, q) }

func (g *gsiTable) remove(q *QP) {
	g.qps = slices.DeleteFunc(g.qps, func(other *QP) bool { return other == q })
	g.ids.drop(q)
	g.services.drop(q)
}

// roomGSI reports whether there may be one more general services QP.
func (s *shard) roomGSI() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.gsi.qps) < maxGSIs
}

// first returns the QP for what nobody claims, nil if there is no QP.
func (g *gsiTable) first() *QP {
	for _, q := range g.qps {
		if state := q.core.State(); state >= ib.RTR && state < ib.Err {
			return q
		}
	}
	if len(g.qps) > 0 {
		return g.qps[0] // which counts that it cannot take it
	}
	return nil
}

// message is what routing needs of a message of the connection manager.
type message struct {
	attr          wire.CMAttr
	local, remote uint32 // the sender's ID, the receiver's; 0 for none
	service       uint64 // REQ, SIDR_REQ
	qpn           ib.QPN // REQ, REP: the sender's
	path          ib.GID // REQ: where answers go
	private       []byte // REQ, SIDR_REQ: in the payload
	answers       bool   // a REQ or SIDR_REQ, the ID of which is remote
	accepts       bool   // that request
}

// asks reports whether the message is a request: its ID is new to the receiver.
func (m *message) asks() bool { return m.attr == wire.AttrREQ || m.attr == wire.AttrSIDRREQ }

// read reads a payload; false means that it is no message of the connection manager
// as IBTA 12.6 has them.
func (m *message) read(payload []byte) bool {
	if len(payload) != wire.MADLen {
		return false
	}
	mad := (*[wire.MADLen]byte)(payload)
	var h wire.MADHeader
	h.Decode(mad)
	if h.BaseVersion != wire.MADBaseVersion || h.Class != wire.MADClassCM || h.ClassVersion != wire.MADClassVersionCM {
		return false
	}
	*m = message{attr: h.Attr}
	switch h.Attr {
	case wire.AttrREQ:
		var req wire.REQ
		req.Decode(mad)
		m.local, m.service, m.qpn, m.path, m.private = req.LocalID, req.ServiceID, req.QPN, req.Primary.LocalGID, req.PrivateData
	case wire.AttrSIDRREQ:
		var req wire.SIDRREQ
		req.Decode(mad)
		m.local, m.service, m.private = req.RequestID, req.ServiceID, req.PrivateData
	case wire.AttrSIDRREP:
		var rep wire.SIDRREP
		rep.Decode(mad)
		m.remote, m.answers, m.accepts = rep.RequestID, true, rep.Status == wire.SIDRValid
	case wire.AttrREP:
		var rep wire.REP
		rep.Decode(mad)
		m.local, m.remote, m.qpn, m.answers, m.accepts = rep.LocalID, rep.RemoteID, rep.QPN, true, true
	case wire.AttrREJ:
		var rej wire.REJ
		rej.Decode(mad)
		m.local, m.remote, m.answers = rej.LocalID, rej.RemoteID, rej.Message == wire.MessageREQ
	case wire.AttrMRA:
		var mra wire.MRA
		mra.Decode(mad)
		m.local, m.remote, m.answers = mra.LocalID, mra.RemoteID, mra.Message == wire.MessageREQ
	case wire.AttrRTU, wire.AttrDREQ, wire.AttrDREP, wire.AttrLAP, wire.AttrAPR:
		var ids wire.RTU // all of them begin with the two IDs, as a RTU
		ids.Decode(mad)
		m.local, m.remote = ids.LocalID, ids.RemoteID
	default:
		return false
	}
	return true
}

// route returns the QP for a datagram to QP 1 that has come from src to the address dst,
// nil if there is none. mad is nil if the datagram is no MAD.
func (g *gsiTable) route(now ib.Instant, src, dst ib.GID, mad *[wire.MADLen]byte) *QP {
	if len(g.qps) == 0 {
		return nil
	}
	var m message
	if mad == nil || !m.read(mad[:]) {
		return g.first()
	}
	if m.asks() {
		return g.request(now, src, dst, &m)
	}
	id := commID{peer: src, id: m.remote}
	if m.remote == 0 && m.attr == wire.AttrREJ {
		id = commID{peer: src, id: m.local, theirs: true}
	}
	r := g.ids.get(now, id)
	if r == nil {
		return g.unclaimed()
	}
	g.ids.heard(now, r, &m)
	return r.qp
}

// request finds the QP for a REQ or SIDR_REQ.
func (g *gsiTable) request(now ib.Instant, src, dst ib.GID, m *message) *QP {
	id := commID{peer: src, id: m.local, theirs: true}
	r := g.ids.get(now, id)
	if r != nil && r.service == m.service && r.at == dst {
		return r.qp
	}
	q := g.services.find(m.service, dst)
	served := q != nil
	if !served {
		q = g.unclaimed()
	}
	if r != nil { // the ID is used again
		g.ids.remove(r)
	}
	r = g.ids.add(now, id, q, idAsked)
	r.service, r.at, r.served = m.service, dst, served
	return q
}

// unclaimed is first, counted.
func (g *gsiTable) unclaimed() *QP {
	if len(g.qps) > 1 {
		g.shard.stats.GSIUnclaimed++
	}
	return g.first()
}

// permit reports whether q may send a payload to QP 1 of dst, and learns from it.
func (g *gsiTable) permit(q *QP, dst ib.GID, payload []byte) bool {
	ok := q.pd.tenant == nil
	if q.typ == ib.GSI {
		var m message
		ok = !m.read(payload) || g.speaks(g.shard.clock(), q, dst, &m)
	}
	if !ok {
		g.shard.stats.DropSpoofedID++
	}
	return ok
}

// speaks is permit for a message of a general services QP.
func (g *gsiTable) speaks(now ib.Instant, q *QP, dst ib.GID, m *message) bool {
	if other, ok := q.pd.dev.byNum.Load(m.qpn); ok && other.(*QP).pd.tenant != q.pd.tenant {
		return false
	}
	if q.pd.tenant != nil && m.asks() && !m.fromHere(q.pd.dev) {
		return false
	}
	id := commID{peer: dst, id: m.local}
	ours := g.ids.get(now, id)
	if ours != nil && ours.qp != q {
		return false
	}
	if m.answers {
		theirs := g.ids.get(now, commID{peer: dst, id: m.remote, theirs: true})
		if theirs != nil && theirs.qp != q || m.accepts && q.pd.tenant != nil && (theirs == nil || !theirs.served) {
			return false
		}
		if theirs != nil {
			g.ids.answered(now, theirs, m)
		}
	}
	if m.local != 0 {
		g.ids.said(now, ours, id, q, m)
	}
	return true
}

// prefixIP is the upper 40 bits of the service IDs of the RDMA IP CM service (IBTA A11).
const prefixIP = 1

// fromHere reports whether a request comes from an address of d by what it says too: by
// its path, and by its private data, which tell a peer's application whom it talks to.
// Linux's kernel writes both. A header in the private data that is malformed is from
// nowhere; by the service ID there may be none.
func (m *message) fromHere(d *Device) bool {
	gids := d.gids.Load()
	if m.attr == wire.AttrREQ && gids.find(m.path, true) < 0 {
		return false
	}
	if _, _, ok := wire.SplitServiceID(m.service); !ok && m.service>>24 != prefixIP {
		return true
	}
	var h wire.CMHeader
	return h.Decode(m.private) == nil && gids.find(h.Src, true) >= 0
}

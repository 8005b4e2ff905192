package cm

import (
	"encoding/binary"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/wire"
)

// input is what the state machine handles: a message, or if only now is set, a deadline or a call of the consumer. The
// field that hdr.Attr names is decoded; its byte slices point into mad.
type input struct {
	now  ib.Instant
	path Path
	hdr  wire.MADHeader
	mad  [wire.MADLen]byte

	req     wire.REQ
	mra     wire.MRA
	rej     wire.REJ
	rep     wire.REP
	rtu     wire.RTU
	dreq    wire.DREQ
	drep    wire.DREP
	sidrReq wire.SIDRREQ
	sidrRep wire.SIDRREP
}

// Handle handles a datagram that arrived over path; path.Local is the GID of this end.
func (m *Manager) Handle(now ib.Instant, path Path, mad []byte) {
	if !m.hasRoom() {
		m.stats.Overrun++
		return
	}
	if len(mad) != wire.MADLen {
		m.stats.BadLength++
		return
	}
	m.in = input{now: now, path: path, mad: [wire.MADLen]byte(mad)}
	in := &m.in
	in.hdr.Decode(&in.mad)
	if !m.wellFormed(in) {
		return
	}
	m.stats.Received[in.hdr.Attr-wire.AttrREQ]++
	c := m.match(in)
	if c != nil && in.hdr.Attr == wire.AttrDREQ && in.dreq.RemoteQPN != c.localQPN {
		m.stats.WrongQPN++ // Linux's cm_dreq_handler ignores such a DREQ, too
		return
	}
	m.dispatch(c, column(in.hdr.Attr-wire.AttrREQ), in)
}

// wellFormed checks source and MAD header. Of all malformed messages only a REQ of another class version is answered
// (IBTA 12.6.7.2, reason 31), with the communication ID at the place where this version has it.
func (m *Manager) wellFormed(in *input) bool {
	h := &in.hdr
	src := in.path.Remote.Addr()
	switch {
	case src.IsMulticast() || src.IsUnspecified():
		m.stats.BadSource++
		return false
	case h.BaseVersion != wire.MADBaseVersion || h.Class != wire.MADClassCM || h.Method != wire.MADMethodSend:
		m.stats.BadHeader++
		return false
	case h.ClassVersion != wire.MADClassVersionCM:
		m.stats.BadHeader++
		if h.Attr == wire.AttrREQ {
			in.req.Decode(&in.mad)
			m.rejectREQ(in, ib.RejectInvalidClassVersion, nil)
		}
		return false
	case h.Attr < wire.AttrREQ || h.Attr > wire.AttrSIDRREP:
		// Alternate paths are not supported: Linux drops LAP and APR on RoCE, too.
		m.stats.Unsupported++
		return false
	}
	return true
}

// match decodes the message and finds the connection that it belongs to.
func (m *Manager) match(in *input) *conn {
	switch in.hdr.Attr {
	case wire.AttrREQ:
		in.req.Decode(&in.mad)
		return m.byRemote[in.reqKey()]
	case wire.AttrMRA:
		in.mra.Decode(&in.mad)
		return m.find(in, in.mra.RemoteID, in.mra.LocalID)
	case wire.AttrREJ:
		in.rej.Decode(&in.mad)
		return m.findRejected(in)
	case wire.AttrREP:
		in.rep.Decode(&in.mad)
		return m.find(in, in.rep.RemoteID, in.rep.LocalID)
	case wire.AttrRTU:
		in.rtu.Decode(&in.mad)
		return m.findBoth(in, in.rtu.RemoteID, in.rtu.LocalID)
	case wire.AttrDREQ:
		in.dreq.Decode(&in.mad)
		return m.findBoth(in, in.dreq.RemoteID, in.dreq.LocalID)
	case wire.AttrDREP:
		in.drep.Decode(&in.mad)
		return m.findBoth(in, in.drep.RemoteID, in.drep.LocalID)
	case wire.AttrSIDRREQ:
		in.sidrReq.Decode(&in.mad)
		return m.byRemote[in.sidrKey()]
	default:
		in.sidrRep.Decode(&in.mad)
		if c := m.findLocal(in, in.sidrRep.RequestID); c != nil && c.state == sidrReqSent {
			return c
		}
		return nil
	}
}

// findLocal returns the connection with our ID local, if the message went between its two GIDs.
func (m *Manager) findLocal(in *input, local uint32) *conn {
	c := m.conns[ID(local)]
	if c == nil || c.path.Local != in.path.Local || c.path.Remote != in.path.Remote {
		return nil
	}
	return c
}

// find returns the connection with both IDs. The peer's ID may be new to the connection.
func (m *Manager) find(in *input, local, remote uint32) *conn {
	c := m.findLocal(in, local)
	if c == nil || datagramStates.has(c.state) || !peerUnknown.has(c.state) && c.remote.id != remote {
		return nil
	}
	return c
}

// findBoth returns the connection with exactly these two IDs.
func (m *Manager) findBoth(in *input, local, remote uint32) *conn {
	if c := m.find(in, local, remote); c != nil && !peerUnknown.has(c.state) {
		return c
	}
	return nil
}

// findRejected returns the connection that a REJ is about. The sender of a REQ that timed out (reason timeout) does not
// know our ID: its GUID, in the additional information, and its own ID identify the connection (Linux's
// cm_acquire_rejected_id). A REJ of our REQ that arrives after a REP only answers a repeated REQ, and is ignored.
func (m *Manager) findRejected(in *input) *conn {
	r := &in.rej
	if r.Reason == ib.RejectTimeout && len(r.Info) >= 8 {
		key := remoteKey{id: r.LocalID, guid: binary.BigEndian.Uint64(r.Info), gid: in.path.Remote}
		if c := m.byRemote[key]; c != nil && halfOpen.has(c.state) { // otherwise the peer knows our ID
			return c
		}
	}
	if r.Message == wire.MessageREQ {
		if c := m.findLocal(in, r.RemoteID); c != nil && peerUnknown.has(c.state) && !datagramStates.has(c.state) {
			return c
		}
		return nil
	}
	return m.find(in, r.RemoteID, r.LocalID)
}

// reqKey returns the key of the connection that a REQ belongs to.
func (in *input) reqKey() remoteKey {
	return remoteKey{id: in.req.LocalID, guid: in.req.CAGUID, gid: in.path.Remote}
}

// sidrKey returns the key of a resolution.
func (in *input) sidrKey() remoteKey {
	return remoteKey{id: in.sidrReq.RequestID, gid: in.path.Remote, datagram: true}
}

// rejectREQ rejects a REQ for which no connection exists.
func (m *Manager) rejectREQ(in *input, reason ib.RejectReason, info []byte) {
	m.reply(in, wire.AttrREJ, &wire.REJ{RemoteID: in.req.LocalID, Message: wire.MessageREQ, Reason: reason, Info: info})
}

// reject sends the REJ or SIDR_REP that ends c at its peer. The fields are those of Linux's cm_format_rej.
func (m *Manager) reject(c *conn, reason ib.RejectReason, info, private []byte) {
	if c.state == sidrReqRcvd {
		m.answerSIDR(c, Answer{Status: sidrStatusOf(reason), Info: info, PrivateData: private})
		return
	}
	rej := wire.REJ{LocalID: uint32(c.id), RemoteID: c.remote.id, Message: wire.MessageOther, Reason: reason,
		Info: info, PrivateData: private}
	switch c.state {
	case reqRcvd:
		rej.LocalID, rej.Message = 0, wire.MessageREQ
	case mraReqSent:
		rej.Message = wire.MessageREQ
	case repRcvd, mraRepSent:
		rej.Message = wire.MessageREP
	}
	if halfOpen.has(c.state) {
		m.answer(c, wire.AttrREJ, &rej)
	} else {
		m.send(c, wire.AttrREJ, c.tid, &rej)
	}
}

// rejectTimeout sends a REJ because the peer has not answered in time. The additional information is our GUID, by which
// a peer that has not told its ID yet finds the connection.
func (m *Manager) rejectTimeout(c *conn) {
	var guid [8]byte
	binary.BigEndian.PutUint64(guid[:], m.opts.GUID)
	m.reject(c, ib.RejectTimeout, guid[:], nil)
}

package track

import (
	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/wire"
)

// maxCM limits the memory for messages of connection managers.
const maxCM = 1 << 14

// Handshake is a connection that managers make: the REQ has the queue pair of the active side, the REP that of the
// passive one (IBTA 12.6.5, 12.6.8).
type Handshake struct {
	Active  Endpoint
	Passive Endpoint // its QPN is 0 before the REP
}

// cm follows messages of the connection managers.
type cm struct {
	asked map[cmID]*Handshake // by the communication ID of the active side
	peers map[cmPeer]Endpoint // of queue pairs, in both directions
}

type cmID struct {
	addr ib.GID
	id   uint32 // local communication ID
}

type cmPeer struct {
	src ib.GID
	dst Endpoint
}

// datagram handles a datagram to the connection manager. It returns the handshake that it belongs to, nil if that did
// not begin in the capture, and whether it is a message of the active side.
func (c *cm) datagram(o *wire.Outer, p *wire.Packet) (h *Handshake, active bool) {
	mad := p.MAD()
	if mad == nil {
		return nil, false
	}
	var header wire.MADHeader
	if header.Decode(mad); header.Class != wire.MADClassCM {
		return nil, false
	}
	switch header.Attr {
	case wire.AttrREQ:
		var req wire.REQ
		req.Decode(mad)
		return c.request(o, &req), true
	case wire.AttrREP:
		var rep wire.REP
		rep.Decode(mad)
		h = c.asked[cmID{o.Dst, rep.RemoteID}]
		c.reply(h, o.Src, rep.QPN)
		return h, false
	case wire.AttrMRA, wire.AttrREJ, wire.AttrRTU, wire.AttrDREQ, wire.AttrDREP:
		var ids wire.RTU // all of them begin as it does
		ids.Decode(mad)
		if h := c.asked[cmID{o.Src, ids.LocalID}]; h != nil && h.Passive.Addr == o.Dst {
			return h, true
		}
		return c.asked[cmID{o.Dst, ids.RemoteID}], false
	}
	return nil, false
}

func (c *cm) request(o *wire.Outer, req *wire.REQ) *Handshake {
	if c.asked == nil {
		c.asked, c.peers = map[cmID]*Handshake{}, map[cmPeer]Endpoint{}
	}
	id := cmID{o.Src, req.LocalID}
	if h := c.asked[id]; h != nil && h.Active.QPN == req.QPN {
		return h // sent again
	}
	h := &Handshake{Active: Endpoint{o.Src, req.QPN}, Passive: Endpoint{Addr: o.Dst}}
	if len(c.asked) < maxCM {
		c.asked[id] = h
	}
	return h
}

func (c *cm) reply(h *Handshake, from ib.GID, qpn ib.QPN) {
	if h == nil || len(c.peers) >= maxCM {
		return
	}
	h.Passive = Endpoint{from, qpn}
	a, b := h.Active, h.Passive
	c.peers[cmPeer{a.Addr, b}], c.peers[cmPeer{b.Addr, a}] = a, b
}

// peerOf returns the queue pair at src that is connected to dst.
func (c *cm) peerOf(src ib.GID, dst Endpoint) (Endpoint, bool) {
	e, ok := c.peers[cmPeer{src, dst}]
	return e, ok
}

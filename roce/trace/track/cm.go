package track

import (
	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/wire"
)

// maxCM limits the memory for messages of connection managers.
const maxCM = 1 << 14

// cm learns from messages of the connection managers which queue pairs are connected: the REQ has one number and the
// REP the other (IBTA 12.6.5, 12.6.8).
type cm struct {
	asked map[cmID]ib.QPN     // from REQs: the queue pair of a communication ID
	peers map[cmPeer]Endpoint // in both directions
}

type cmID struct {
	addr ib.GID
	id   uint32 // local communication ID
}

type cmPeer struct {
	src ib.GID
	dst Endpoint
}

// datagram handles a datagram to the connection manager.
func (c *cm) datagram(o *wire.Outer, p *wire.Packet) {
	mad := p.MAD()
	if mad == nil {
		return
	}
	var h wire.MADHeader
	if h.Decode(mad); h.Class != wire.MADClassCM {
		return
	}
	switch h.Attr {
	case wire.AttrREQ:
		var req wire.REQ
		req.Decode(mad)
		c.request(o, &req)
	case wire.AttrREP:
		var rep wire.REP
		rep.Decode(mad)
		c.reply(o, &rep)
	}
}

func (c *cm) request(o *wire.Outer, req *wire.REQ) {
	if c.asked == nil {
		c.asked, c.peers = map[cmID]ib.QPN{}, map[cmPeer]Endpoint{}
	}
	if len(c.asked) < maxCM {
		c.asked[cmID{o.Src, req.LocalID}] = req.QPN
	}
}

func (c *cm) reply(o *wire.Outer, rep *wire.REP) {
	active, ok := c.asked[cmID{o.Dst, rep.RemoteID}]
	if !ok || len(c.peers) >= maxCM {
		return
	}
	a, b := Endpoint{o.Dst, active}, Endpoint{o.Src, rep.QPN}
	c.peers[cmPeer{a.Addr, b}], c.peers[cmPeer{b.Addr, a}] = a, b
}

// peerOf returns the queue pair at src that is connected to dst.
func (c *cm) peerOf(src ib.GID, dst Endpoint) (ib.QPN, bool) {
	e, ok := c.peers[cmPeer{src, dst}]
	return e.QPN, ok
}

package track

import (
	"encoding/binary"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/wire"
)

// maxCM bounds what connection managers can make the tracker remember.
const maxCM = 1 << 14

// cm learns from the connection managers' messages which queue pairs belong
// together: REQ names one and REP the other (IBTA 12.6.5, 12.6.8).
type cm struct {
	asked map[cmID]ib.QPN     // by REQ: communication ID to queue pair
	peers map[cmPeer]Endpoint // both ways
}

type cmID struct {
	addr ib.GID
	id   uint32 // local communication ID
}

type cmPeer struct {
	src ib.GID
	dst Endpoint
}

// MADs of the connection manager: offsets of the whole MAD.
const (
	madLen       = 256
	madClassCM   = 7
	attrREQ      = 0x10
	attrREP      = 0x13
	offLocalID   = 24
	offRemoteID  = 28
	offREQLocal  = 24 + 32 // three bytes of queue pair number
	offREPLocal  = 24 + 12
	offAttribute = 16
)

// datagram looks at a datagram for the connection manager.
func (c *cm) datagram(o *wire.Outer, p *wire.Packet) {
	b := p.Payload
	if p.DestQP != ib.QPNGSI || len(b) < madLen || b[1] != madClassCM {
		return
	}
	switch binary.BigEndian.Uint16(b[offAttribute:]) {
	case attrREQ:
		if c.asked == nil {
			c.asked, c.peers = map[cmID]ib.QPN{}, map[cmPeer]Endpoint{}
		}
		if len(c.asked) < maxCM {
			c.asked[cmID{o.Src, binary.BigEndian.Uint32(b[offLocalID:])}] = qpnAt(b[offREQLocal:])
		}
	case attrREP:
		active, ok := c.asked[cmID{o.Dst, binary.BigEndian.Uint32(b[offRemoteID:])}]
		if !ok || len(c.peers) >= maxCM {
			return
		}
		a, b := Endpoint{o.Dst, active}, Endpoint{o.Src, qpnAt(b[offREPLocal:])}
		c.peers[cmPeer{a.Addr, b}], c.peers[cmPeer{b.Addr, a}] = a, b
	}
}

func qpnAt(b []byte) ib.QPN { return ib.QPN(b[0])<<16 | ib.QPN(b[1])<<8 | ib.QPN(b[2]) }

// peerOf returns the queue pair at src that is connected to dst.
func (c *cm) peerOf(src ib.GID, dst Endpoint) (ib.QPN, bool) {
	e, ok := c.peers[cmPeer{src, dst}]
	return e.QPN, ok
}

package track

import (
	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/wire"
)

// Endpoint is a queue pair at an address.
type Endpoint struct {
	Addr ib.GID
	QPN  ib.QPN
}

// Flow is all packets from one address to one queue pair: for UD, from one queue pair. A connection has two, which are
// each other's Peer.
type Flow struct {
	Src     ib.GID
	Dst     Endpoint
	Service wire.Service
	Peer    *Flow // nil if not known
	Conn    *Conn
	Stats   Stats

	src     Endpoint // the sending queue pair, if a handshake has told it
	srcPort uint16   // of the first packet
	tries   int      // attempts to find the peer
	mtu     int      // path MTU; 0 if not known
	req     requests
}

// Source returns the sending queue pair. ok is false if it is not known, because the peer is not.
func (f *Flow) Source() (Endpoint, bool) {
	switch {
	case f.Peer != nil:
		return f.Peer.Dst, true
	case f.src.QPN != 0:
		return f.src, true
	}
	return Endpoint{Addr: f.Src}, false
}

// Outstanding returns how many of the requests in the history have no answer.
func (f *Flow) Outstanding() int {
	if f.Service != wire.RC && f.Service != wire.XRC {
		return 0
	}
	n := 0
	for i := range f.req.sent.entries {
		s := &f.req.sent.entries[i]
		answered := s.psn.Before(f.req.unacked)
		if s.msg.Verb.answered() {
			answered = s.msg.done
		}
		if !answered {
			n++
		}
	}
	return n
}

// Conn is a connection: one flow or two. Flows[0] was seen first.
type Conn struct {
	Num     int // from 1 on, in the order of first packets; a number may be left out
	Flows   []*Flow
	Service wire.Service
}

// Has reports whether the connection has a queue pair with this number.
func (c *Conn) Has(qpn ib.QPN) bool {
	for _, f := range c.Flows {
		if f.Dst.QPN == qpn || f.src.QPN == qpn && qpn != 0 {
			return true
		}
	}
	return false
}

// MTU returns the path MTU in bytes, 0 if no packet shows it.
func (c *Conn) MTU() int {
	for _, f := range c.Flows {
		if f.mtu > 0 {
			return f.mtu
		}
	}
	return 0
}

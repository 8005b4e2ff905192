package wrap

import (
	"encoding/binary"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/ib/driver"
	"github.com/goroce/goroce/roce/link"
	"github.com/goroce/goroce/wire"
)

// Match selects frames by the hosts and QPs that they go between. The zero value selects all frames.
//
// Frames have the number of the QP that they go to; only datagrams also have the number of the one that they come from
// (DETH). So for a connection, QPN alone selects what is received, PeerQPN alone what is sent, and both together select
// both.
type Match struct {
	QPN     ib.QPN // QP of this host; 0 for any
	PeerQPN ib.QPN // QP of the peer; 0 for any. If QPN is set, too, a frame need only match one of them.
	Peer    ib.GID // the other host; zero for any
}

// check refuses invalid QP numbers.
func (m *Match) check(op string) error {
	for _, c := range []struct {
		attr string
		qpn  ib.QPN
	}{{"QPN", m.QPN}, {"PeerQPN", m.PeerQPN}} {
		if c.qpn > ib.QPNMask {
			return driver.Refuse(op, c.attr, uint32(c.qpn), "24 bits, 0 for any", ib.ErrInvalid)
		}
	}
	return nil
}

// frame reports whether a frame of r is selected.
func (m *Match) frame(sent bool, r *link.Run, frame []byte) bool {
	if m.Peer != (ib.GID{}) {
		peer := &r.Src
		if sent {
			peer = &r.Dst
		}
		if *peer != m.Peer {
			return false
		}
	}
	if m.QPN == 0 && m.PeerQPN == 0 {
		return true
	}
	if len(frame) < wire.BTHLen {
		return false
	}
	own, peer := ends(frame)
	if sent {
		own, peer = peer, own
	}
	return m.QPN != 0 && own == m.QPN || m.PeerQPN != 0 && peer == m.PeerQPN
}

// ends returns the destination and the source QP of a frame; from is 0 if the frame does not have it.
func ends(frame []byte) (to, from ib.QPN) {
	to = ib.QPN(binary.BigEndian.Uint32(frame[4:])) & ib.QPNMask // IBTA 9.2.1
	// A DETH follows the BTH directly. Its second word is the source QP (IBTA 9.3.2).
	if op := wire.Opcode(frame[0]); op.Headers()&wire.HasDETH != 0 && len(frame) >= op.HeaderLen() {
		from = ib.QPN(binary.BigEndian.Uint32(frame[wire.BTHLen+4:])) & ib.QPNMask
	}
	return to, from
}

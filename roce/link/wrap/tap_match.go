package wrap

import (
	"encoding/binary"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/link"
	"github.com/goroce/goroce/wire"
)

// Match selects frames by whom they are between. The zero value selects all.
//
// A frame names the QP that it is for. Only datagrams also name the one that they
// come from (DETH), so QPN alone finds of a connection what is received, and PeerQPN
// alone what is sent. Both together find both ways.
type Match struct {
	QPN     ib.QPN // own QP; 0 for any
	PeerQPN ib.QPN // the peer's QP; 0 for any. If QPN is set too, either will do.
	Peer    ib.GID // the other host; zero for any
}

// check refuses QP numbers that there cannot be.
func (m *Match) check(op string) error {
	for _, c := range []struct {
		attr string
		qpn  ib.QPN
	}{{"QPN", m.QPN}, {"PeerQPN", m.PeerQPN}} {
		if c.qpn > ib.QPNMask {
			return ib.Refuse(op, c.attr, uint32(c.qpn), "24 bits, 0 for any", ib.ErrInvalid)
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

// ends returns the QPs that a frame is for and from; 0 if it does not name the latter.
func ends(frame []byte) (to, from ib.QPN) {
	to = ib.QPN(binary.BigEndian.Uint32(frame[4:])) & ib.QPNMask // IBTA 9.2.1
	// A DETH follows the BTH at once, its second word is the source QP (IBTA 9.3.2).
	if op := wire.Opcode(frame[0]); op.Headers()&wire.HasDETH != 0 && len(frame) >= op.HeaderLen() {
		from = ib.QPN(binary.BigEndian.Uint32(frame[wire.BTHLen+4:])) & ib.QPNMask
	}
	return to, from
}

package wrap

import (
	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/link"
	"github.com/goroce/goroce/roce/link/internal/runs"
	"github.com/goroce/goroce/wire"
)

// Seal returns a Link that writes the ICRC into the last four bytes of every frame that is sent. From l.Caps it knows
// the source port and the IPv4 identifications that the frames will have. If the driver uses Run.ID (link.IDFree), it
// numbers all frames consecutively, like a host with a single counter. Received frames are not changed.
func Seal(l link.Link) link.Link { return &sealer{Link: l, caps: l.Caps()} }

// SealForRxe is Seal for peers that are rdma_rxe. It gives FLUSH the ICRC that rdma_rxe computes (wire.Outer.Twice),
// which other peers would drop.
func SealForRxe(l link.Link) link.Link { return &sealer{Link: l, caps: l.Caps(), forRxe: true} }

type sealer struct {
	link.Link
	caps   link.Caps
	forRxe bool
	nextID uint16
}

func (s *sealer) Send(now ib.Instant, out []link.Run) (int, error) {
	for i := range out {
		s.seal(&out[i])
	}
	return s.Link.Send(now, out)
}

func (s *sealer) seal(r *link.Run) {
	if s.caps.ID == link.IDFree {
		r.ID = s.nextID
		s.nextID += uint16(r.Frames())
	}
	if s.forRxe {
		s.sealEach(r)
		return
	}
	o := outerSent(r, &s.caps)
	full := len(r.Buf)
	if r.Size >= runs.MinFrame {
		full -= len(r.Buf) % r.Size
		first := sentID(r, s.caps.ID, 0)
		prefix := o.Prefix(r.Size)
		prefix.SealRun(first, sentID(r, s.caps.ID, 1)-first, r.Buf[:full], r.Size)
	}
	if tail := r.Buf[full:]; len(tail) >= runs.MinFrame { // the driver refuses runs with shorter frames
		prefix := o.Prefix(len(tail))
		prefix.Seal(sentID(r, s.caps.ID, r.Frames()-1), tail)
	}
}

// sealEach seals the frames of a run to rdma_rxe.
func (s *sealer) sealEach(r *link.Run) {
	o := outerSent(r, &s.caps)
	prefix := o.Prefix(r.Size)
	for i := range r.Frames() {
		frame := r.Frame(i)
		if len(frame) < runs.MinFrame {
			return // the driver will refuse it
		}
		if len(frame) != r.Size {
			prefix = o.Prefix(len(frame))
		}
		id := sentID(r, s.caps.ID, i)
		if wire.Opcode(frame[0]) == wire.RCFlush {
			o.ID, o.Twice = id, true
			o.Seal(frame)
			continue
		}
		prefix.Seal(id, frame)
	}
}

package qp

import (
	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/mr"
	"github.com/goroce/goroce/wire"
)

// This file is header prediction: in a fast stream most packets are like the one
// before, and take little of what the others do (V. Jacobson, 4BSD header
// prediction, 1990). What is not as foreseen takes the long way, which does all that
// is done here, and more.

// foreseen takes a WRITE ONLY that is next in line and goes where the latest WRITE
// went, as those of a train do. It reports whether p was one.
func (r *responder) foreseen(now ib.Instant, p *wire.Packet) bool {
	if !r.holds(p) {
		return false
	}
	ok := mr.WriteHeld(r.again, p.RETH.VA, p.Payload)
	mr.Release(r.again)
	if !ok {
		return false
	}
	r.wrote(1)
	if p.AckReq {
		r.oweACK(now)
	}
	return true
}

// train takes frames of size bytes, each like the one before (wire.Alike), as long as
// they are foreseen. It returns how many.
func (r *responder) train(frames []byte, size int) int {
	var p wire.Packet
	if p.Decode(frames[:size-wire.ICRCLen]) != nil || !r.holds(&p) {
		return 0
	}
	n := 0
	for frame := frames; len(frame) >= size; frame = frame[size:] {
		va, payload := wire.AlikeWrite(frame, len(p.Payload))
		if !mr.WriteHeld(r.again, va, payload) {
			break
		}
		n++
	}
	mr.Release(r.again)
	if n > 0 {
		r.wrote(n)
	}
	return n
}

// holds reports whether p is a WRITE ONLY that is next in line, with a key that opens
// what the latest WRITE went to, which is held then.
func (r *responder) holds(p *wire.Packet) bool {
	n := len(p.Payload)
	return p.Opcode == wire.RCWriteOnly && p.PSN == r.epsn && r.again != nil && r.inside == noMessage &&
		r.q.state == ib.RTS && r.commits.empty() &&
		n > 0 && n <= int(r.q.attr.PathMTU) && int(p.RETH.Len) == n && mr.Hold(r.again, p.RETH.RKey)
}

// wrote moves on behind n WRITE ONLYs.
func (r *responder) wrote(n int) {
	r.quiet = false
	r.epsn, r.msn = r.epsn.Add(n), r.msn.Add(n)
	r.acked = r.epsn.Add(-1)
}

// train lets the packets of a train that are behind tx and like it follow at once: all
// that need no answer and are not the last, most at most. It returns how many.
func (r *requester) train(tx *TxPacket, most int) int {
	psn := r.win.nxt
	if tx.Opcode != wire.RCWriteOnly || tx.SGL == nil || tx.PSN.Add(1) != psn || r.cur == r.tail || r.q.pace.nsPerKB != 0 {
		return 0
	}
	s := r.slot(r.cur)
	if !s.begun || !s.train || s.first == psn {
		return 0
	}
	n := min(most, s.last().Sub(psn), r.win.room()-1, r.q.flow.room(s.cost)-1, r.askEvery()-1-r.unasked)
	if n <= 0 {
		return 0
	}
	tx.Train = n
	r.gaveOut(s, n)
	r.unasked += n
	return n
}

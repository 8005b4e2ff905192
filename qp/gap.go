package qp

import "github.com/goroce/goroce/wire"

// beyond is asked what to do with p, a request of a reliable service beyond the expected PSN.
// It drops p, since the peer's go-back-N sends it again: it answers a gap with one sequence NAK
// of the expected PSN, and drops more packets behind the same gap silently (IBTA 9.7.5.1.2).
//
// Here packets could wait for those in front of them, and only here: packets in order do
// not come by. Who keeps p copies it, as its payload belongs to the link, and passes it to
// handle once epsn has reached its PSN.
func (r *responder) beyond(_ *wire.Packet) {
	r.q.cfg.Stats.OutOfSequence++
	if r.owed.discarding {
		r.q.judge(Behind)
		return
	}
	r.q.cfg.Stats.OutOfSeqRequest++
	r.owed.discarding = true
	r.q.judge(Gap)
	r.oweNAK(r.epsn, wire.NAKSequence)
}

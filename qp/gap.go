package qp

import (
	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/wire"
)

// beyond handles p, a request of a reliable service beyond the expected PSN. Kept requests may stand
// in for those before it (reorder.go). Else a gap is answered with one sequence NAK of the expected PSN,
// and more packets behind the same gap with silence (IBTA 9.7.5.1.2).
func (r *responder) beyond(now ib.Instant, p *wire.Packet) {
	r.standIn(now, p.PSN)
	if !p.PSN.After(r.epsn) || r.phase >= refused {
		r.handle(now, p)
		return
	}
	verdict := Behind
	if r.keep(now, p) {
		verdict = Kept
		r.q.cfg.Stats.KeptRequests++
	}
	r.q.cfg.Stats.OutOfSequence++
	r.oweSACK(now, p.PSN)
	if r.q.flow != nil {
		r.q.flow.lossy()
	}
	if r.owed.discarding {
		r.q.judge(verdict)
		return
	}
	r.q.cfg.Stats.OutOfSeqRequest++
	r.owed.discarding = true
	r.q.judge(Gap)
	r.oweNAK(r.epsn, wire.NAKSequence)
}

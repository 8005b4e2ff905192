package qp

import "github.com/goroce/goroce/ib"

// Progress says what became of the packets of one direction: requests, or
// answers to READs, atomics and the like. An engine tells from it whether what it
// sends arrives. Counters run on and wrap. That an answer has arrived shows late: when a
// new request takes the place of the one that it answers (IBTA 9.7.4.1.4).
type Progress struct {
	Until     ib.PSN // the peer has everything before it
	Confirmed uint32 // PSNs that Until has passed over

	// Repetitions are known at the requester from what it sends again, at the
	// responder from what it is asked for again.
	Repeats uint32 // how many there were
	From    ib.PSN // where the latest began
	Lost    bool   // it was for missing packets, not for want of a receive
}

func (p *Progress) confirm(until ib.PSN, n int) {
	p.Until = until
	p.Confirmed += uint32(n)
}

func (p *Progress) repeat(from ib.PSN, lost bool) {
	p.Repeats++
	p.From, p.Lost = from, lost
}

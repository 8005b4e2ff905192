package qp

import "github.com/goroce/goroce/ib"

// Progress counts confirmed and repeated packets of one direction: requests, or
// responses to READs, atomics and the like. An engine infers from it whether its packets
// arrive. The counters wrap. A response counts as confirmed late: when a new request takes
// the resource of the request that it answers (IBTA 9.7.4.1.4).
type Progress struct {
	Until     ib.PSN // the peer has everything before it
	Confirmed uint32 // PSNs that Until has passed

	// The requester counts its own retransmissions, the responder the duplicate requests
	// for which it repeats responses.
	Repeats uint32 // how many there were
	From    ib.PSN // first PSN of the latest
	Lost    bool   // the latest was because of lost packets, not because of an RNR NAK
}

func (p *Progress) confirm(until ib.PSN, n int) {
	p.Until = until
	p.Confirmed += uint32(n)
}

func (p *Progress) repeat(from ib.PSN, lost bool) {
	p.Repeats++
	p.From, p.Lost = from, lost
}

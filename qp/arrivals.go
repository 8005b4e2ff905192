package qp

import "github.com/goroce/goroce/ib"

// Arrivals is what an owner needs that infers from acknowledgements whether the QP's packets
// arrive, as the engine does for package offload. The owner sets AskRepeats at any time and reads
// the rest after an input. Nothing else in the QP depends on it.
type Arrivals struct {
	// AskRepeats is how many request packets at the start of each retransmission after a loss
	// have AckReq, so that it shows whether they arrive even if no other packet does. With 0
	// only the packets that have AckReq anyway ask for an ACK.
	AskRepeats uint8
	left       uint8 // of these, packets of the latest retransmission that are still to be sent
	answered   bool  // the present input has repeated some response

	Requests Progress // the requester's packets
	Answers  Progress // the responses to READs, atomics, FLUSH and ATOMIC WRITE
}

// Progress counts confirmed and repeated packets of one direction. The counters wrap. A response
// counts as confirmed late: when a new request takes the resource of the request that it answers
// (IBTA 9.7.4.1.4).
type Progress struct {
	Until     ib.PSN // the peer has everything before it
	Confirmed uint32 // PSNs that Until has passed

	// The requester counts its own retransmissions, the responder the duplicate requests
	// for which it repeats responses.
	Repeats uint32 // how many there were
	From    ib.PSN // first PSN of the latest
	Lost    bool   // the latest was because of lost packets, not because of an RNR NAK
}

// Arrivals returns the QP's Arrivals, which belong to the QP.
func (q *QP) Arrivals() *Arrivals { return &q.arrivals }

// Fate is what is known of a request packet.
type Fate uint8

// Fates.
const (
	FateUnknown Fate = iota
	FateArrived
	FateLost // and sent again, or to be
)

// Fate returns what SACKs and ACKs have said of a request packet. known is false if the peer sends no SACKs: only
// Arrivals tells then.
func (q *QP) Fate(psn ib.PSN) (f Fate, known bool) {
	w := &q.req.win
	_, lost := w.need.run(psn, 1)
	_, again := q.req.again.run(psn, 1)
	_, sacked := w.sacked.run(psn, 1)
	switch {
	case !q.selects():
		return FateUnknown, false
	case psn.Before(w.una) || sacked:
		return FateArrived, true
	case lost || again:
		return FateLost, true
	}
	return FateUnknown, true
}

func (p *Progress) confirm(until ib.PSN, n int) {
	p.Until = until
	p.Confirmed += uint32(n)
}

func (p *Progress) repeat(from ib.PSN, lost bool) {
	p.Repeats++
	p.From, p.Lost = from, lost
}

// goesBack records that the requester retransmits from psn on, because packets were lost or,
// if lost is false, because of an RNR NAK.
func (a *Arrivals) goesBack(psn ib.PSN, lost bool) {
	if lost {
		a.left = a.AskRepeats
	}
	a.Requests.repeat(psn, lost)
}

// sends sets AckReq in the first packets of a retransmission. The requester calls it for each
// packet after timeRTT, so these AckReqs do not change which packets are timed.
func (a *Arrivals) sends(tx *TxPacket) {
	if tx.Again && a.left > 0 {
		a.left--
		tx.AckReq = true
	}
}

// answersAgain records that the responder repeats responses from psn on. A requester that goes
// back repeats everything from there on, so only the first one of an input counts.
func (a *Arrivals) answersAgain(psn ib.PSN) {
	if a.answered && psn.After(a.Answers.From) {
		return
	}
	a.answered = true
	a.Answers.repeat(psn, true)
}

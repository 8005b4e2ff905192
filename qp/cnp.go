package qp

import (
	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/wire"
)

// This file is explicit congestion notification (IBTA A17.9.3). A switch with a long queue marks packets whose sender
// takes part (wire.ECN). Who gets marked requests or READ responses sends congestion notification packets (CNP) to
// their sender, and who gets a CNP makes the congestion window smaller, once a round trip. rdma_rxe does neither.

// cnpGap is the least time between two CNPs of a QP, in nanoseconds.
const cnpGap = ib.Instant(50_000)

// cnps is the state of what a QP notifies its peer of.
type cnps struct {
	due bool       // a CNP is to be sent
	at  ib.Instant // not before
}

// countMarked counts n packets like p, if they have met congestion.
func (q *QP) countMarked(p *wire.Packet, n int) {
	if p.ECN != wire.CE {
		return
	}
	q.cfg.Stats.ECNMarked += uint64(n)
	if !q.svc.reliable || !p.Opcode.IsRequest() && !p.Opcode.IsReadResp() {
		return
	}
	q.kept().cnp.due = true
	if q.flow != nil {
		q.flow.marks.MarkedPkts += uint64(n)
	}
	if p.Opcode.IsReadResp() && q.flow != nil { // how many come depends on the window of who asks
		q.flow.onMark(q.now)
	}
}

// emitCNP builds a CNP, if one is due and it is time.
func (q *QP) emitCNP(now ib.Instant, tx *TxPacket) int {
	if q.history == nil || !q.history.cnp.due || now < q.history.cnp.at {
		return 0
	}
	q.history.cnp = cnps{at: now + cnpGap}
	*tx = TxPacket{Packet: wire.Packet{BTH: wire.BTH{Opcode: wire.CNP, PKey: ib.DefaultPKey, BECN: true,
		DestQP: q.attr.DestQPN}}, Inline: cnpPayload[:], Len: len(cnpPayload)}
	q.cfg.Stats.SentCNPs++
	return 1
}

var cnpPayload [16]byte // reserved (A17.9.3, figure 6)

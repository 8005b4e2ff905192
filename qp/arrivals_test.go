package qp

import (
	"slices"
	"testing"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/wire"
)

// TestAskRepeats: as many packets of each retransmission after a loss as the owner wants ask for an ACK, and
// none of one after an RNR NAK.
func TestAskRepeats(t *testing.T) {
	lost, notReady := wire.NAKSequence, wire.RNRNak(1)
	for _, c := range []struct {
		name string
		ask  uint8
		why  wire.Syndrome
		want []bool // AckReq of the packets
	}{
		{"the owner does not ask", 0, lost, []bool{false, false, false, true}},
		{"one", 1, lost, []bool{true, false, false, true}},
		{"two", 2, lost, []bool{true, true, false, true}},
		{"two, but no receive is posted", 2, notReady, []bool{false, false, false, true}},
	} {
		h, _ := connected(t)
		h.q.Arrivals().AskRepeats = c.ask
		h.post(&ib.SendWR{Opcode: ib.WRSend, SGL: []ib.SGE{h.sge(0, 4*1024)}})
		h.emit(0, 8)
		nak := ack(ourPSN, 0)
		nak.AETH.Syndrome = c.why
		h.handle(1000, nak)
		var got []bool
		h.q.HandleTimeout(1_000_000)
		for _, tx := range h.emit(1_000_000, 8) {
			got = append(got, tx.AckReq)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: AckReq of the repeated packets: got %v, want %v", c.name, got, c.want)
		}
		want := Progress{Until: ourPSN, Repeats: 1, From: ourPSN, Lost: c.why == lost}
		if got := h.q.Arrivals().Requests; got != want {
			t.Errorf("%s: progress of requests: got %+v, want %+v", c.name, got, want)
		}
	}
}

// TestAnswersRepeated: duplicates of READs in one input count as one repetition, from the first on.
func TestAnswersRepeated(t *testing.T) {
	h, _ := connected(t)
	read := func(psn ib.PSN) wire.Packet {
		p := request(wire.RCReadRequest, psn, nil)
		p.RETH = wire.RETH{VA: memAddr, RKey: h.region.Key(), Len: 8}
		return p
	}
	first, second := read(peerPSN), read(peerPSN.Add(1))
	h.q.HandlePackets(0, []wire.Packet{first, second})
	h.emit(0, 8)
	h.q.HandlePackets(0, []wire.Packet{first, second})
	want := Progress{Until: peerPSN, Repeats: 1, From: peerPSN, Lost: true}
	if got := h.q.Arrivals().Answers; got != want {
		t.Errorf("both READs again: got %+v, want %+v", got, want)
	}
	h.emit(0, 8)
	h.handle(0, second)
	want.Repeats, want.From = 2, peerPSN.Add(1)
	if got := h.q.Arrivals().Answers; got != want {
		t.Errorf("then the second again: got %+v, want %+v", got, want)
	}
	h.emit(0, 8)
	for i := range 4 { // as many as the QP keeps: the first two are known to have their answers
		h.handle(0, read(peerPSN.Add(2+i)))
		h.emit(0, 8)
	}
	want.Until, want.Confirmed = peerPSN.Add(2), 2
	if got := h.q.Arrivals().Answers; got != want {
		t.Errorf("after four new READs: got %+v, want %+v", got, want)
	}
}

package qp

import (
	"fmt"
	"testing"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/mr"
	"github.com/goroce/goroce/wire"
)

// unreliableInputs are all inputs of a UC or UD QP except Modify. Each is tried on a QP
// that has, as far as its state allows, sent SEND 1 as PSN 100, the receives 2 (slow
// memory) and 3 posted, and a message of the peer, PSN 500, with an unfinished placement
// in slow memory: a WRITE for UC, a SEND into receive 2 for UD.
var unreliableInputs = []struct {
	name string
	do   func(h *host, late []mr.Placement) (taken bool)
}{
	{"PostSend", func(h *host, _ []mr.Placement) bool {
		return CanPostSend(h.q.State()) && h.postSend(4, h.region.Key())
	}},
	{"PostSend, bad key", func(h *host, _ []mr.Placement) bool {
		return CanPostSend(h.q.State()) && h.postSend(4, 0xBAD) && h.postSend(5, h.region.Key())
	}},
	{"PostSend, SendFailed", func(h *host, _ []mr.Placement) bool {
		if !CanPostSend(h.q.State()) {
			return false
		}
		h.postSend(4, h.region.Key())
		h.postSend(5, h.region.Key())
		var out [4]TxPacket
		if h.q.NextPackets(1, out[:]) > 0 {
			h.q.SendFailed(1, &out[0])
		}
		return true
	}},
	{"PostRecv", func(h *host, _ []mr.Placement) bool {
		if !CanPostRecv(h.q.State()) {
			return false
		}
		h.postRecv(&ib.RecvWR{ID: 6, SGL: []ib.SGE{h.sge(0, 64)}})
		return true
	}},
	{"request", func(h *host, _ []mr.Placement) bool {
		h.handle(0, h.sendOnly(peerPSN+1))
		return true
	}},
	{"timeout", func(h *host, _ []mr.Placement) bool {
		h.q.HandleTimeout(h.q.Deadline())
		return true
	}},
	{"early timeout", func(h *host, _ []mr.Placement) bool {
		h.q.HandleTimeout(1)
		return true
	}},
	{"Placed", func(h *host, late []mr.Placement) bool {
		h.place(late)
		return true
	}},
	{"request, Placed", func(h *host, late []mr.Placement) bool {
		h.handle(0, h.sendOnly(peerPSN+1))
		late = append(late, h.placements()...)
		h.place(late)
		return true
	}},
	{"Sent", func(h *host, _ []mr.Placement) bool {
		h.q.Sent(1)
		return true
	}},
	{"NextPackets", func(*host, []mr.Placement) bool { return true }},
}

// unreliableOutcomes lists the outputs of each input; inputs that are not listed have "-",
// as have all in RESET. RTR receives like RTS, INIT not at all.
var unreliableOutcomes = map[ib.QPType]map[ib.QPState]map[string]string{
	ib.UC: {
		ib.StateReset: refusedToPost("PostRecv"),
		ib.StateInit:  refusedToPost(),
		ib.StateRTR: with(refusedToPost(), map[string]string{
			"request, Placed": "recv 2 success",
		}),
		ib.StateRTS: {
			"PostSend":             "SEND Only 101, send 4 success",
			"PostSend, bad key":    "send 4 local protection error, send 5 Work Request Flushed Error, SQE",
			"PostSend, SendFailed": "send 4 local protection error, send 5 Work Request Flushed Error, SQE",
			"request, Placed":      "recv 2 success",
		},
		ib.StateSQD: {
			"request, Placed": "recv 2 success",
		},
		ib.StateSQE: {
			"PostSend":             "send 4 Work Request Flushed Error",
			"PostSend, bad key":    "send 4 Work Request Flushed Error, send 5 Work Request Flushed Error",
			"PostSend, SendFailed": "send 4 Work Request Flushed Error, send 5 Work Request Flushed Error",
			"request, Placed":      "recv 2 success",
		},
		ib.StateErr: {
			"Placed":          "recv 2 Work Request Flushed Error, recv 3 Work Request Flushed Error",
			"request, Placed": "recv 2 Work Request Flushed Error, recv 3 Work Request Flushed Error",
		},
	},
	ib.UD: {
		ib.StateReset: refusedToPost("PostRecv"),
		ib.StateInit:  refusedToPost(),
		ib.StateRTR: with(refusedToPost(), map[string]string{
			"Placed": "recv 2 success", "request, Placed": "recv 2 success, recv 3 success",
		}),
		ib.StateRTS: {
			"PostSend":             "SEND Only 101, send 4 success",
			"PostSend, bad key":    "send 4 local protection error, send 5 Work Request Flushed Error, SQE",
			"PostSend, SendFailed": "send 4 local protection error, send 5 Work Request Flushed Error, SQE",
			"Placed":               "recv 2 success",
			"request, Placed":      "recv 2 success, recv 3 success",
		},
		ib.StateSQD: {
			"Placed": "recv 2 success", "request, Placed": "recv 2 success, recv 3 success",
		},
		ib.StateSQE: {
			"PostSend":             "send 4 Work Request Flushed Error",
			"PostSend, bad key":    "send 4 Work Request Flushed Error, send 5 Work Request Flushed Error",
			"PostSend, SendFailed": "send 4 Work Request Flushed Error, send 5 Work Request Flushed Error",
			"Placed":               "recv 2 success",
			"request, Placed":      "recv 2 success, recv 3 success",
		},
		// In ERR the flush waits for the unfinished placement.
		ib.StateErr: {
			"Placed":          "recv 2 Work Request Flushed Error, recv 3 Work Request Flushed Error",
			"request, Placed": "recv 2 Work Request Flushed Error, recv 3 Work Request Flushed Error",
		},
	},
}

// refusedToPost returns the outcomes in states that refuse posting of sends, and of the
// other inputs that are named.
func refusedToPost(more ...string) map[string]string {
	m := map[string]string{}
	for _, name := range append(more, "PostSend", "PostSend, bad key", "PostSend, SendFailed") {
		m[name] = "refused"
	}
	return m
}

func with(m, more map[string]string) map[string]string {
	for name, outcome := range more {
		m[name] = outcome
	}
	return m
}

// TestUnreliableStatesAndInputs tries every input in every state of UC and UD.
func TestUnreliableStatesAndInputs(t *testing.T) {
	for _, typ := range []ib.QPType{ib.UC, ib.UD} {
		for _, state := range statesOf(typ) {
			for _, in := range unreliableInputs {
				t.Run(fmt.Sprintf("%v/%v/%s", typ, state, in.name), func(t *testing.T) {
					h, late := unreliableIn(t, typ, state)
					got := h.outcome(func() bool { return in.do(h, late) })
					want := unreliableOutcomes[typ][state][in.name]
					if want == "" {
						want = "-"
					}
					if got != want {
						t.Errorf("%q, want %q", got, want)
					}
				})
			}
		}
	}
}

// unreliableIn returns a QP in the given state, with work under way, and its unfinished
// placements.
func unreliableIn(t *testing.T, typ ib.QPType, state ib.QPState) (*host, []mr.Placement) {
	h := newServiceHost(t, typ, ourNum, false)
	attr := goodAttr(peerNum, ourPSN, peerPSN)
	if state == ib.StateInit || state == ib.StateRTR {
		h.up(state, attr)
	} else {
		h.up(ib.StateRTS, attr)
	}
	h.postRecv(&ib.RecvWR{ID: 2, SGL: []ib.SGE{{Addr: slowAddr + 64, Length: 64, LKey: h.slowReg.Key()}}})
	h.postRecv(&ib.RecvWR{ID: 3, SGL: []ib.SGE{h.sge(64, 64)}})
	if state != ib.StateInit {
		h.handle(0, h.slowMessage())
	}
	late := h.placements()
	if CanPostSend(h.q.State()) {
		h.postSend(1, h.region.Key())
	}
	h.outcome(nil) // sends SEND 1
	switch state {
	case ib.StateReset, ib.StateSQD, ib.StateErr:
		h.must(h.modify(state, attr, 0))
	case ib.StateSQE:
		h.failSend()
	}
	if h.q.State() != state {
		t.Fatalf("got a QP in %v, want %v", h.q.State(), state)
	}
	return h, late
}

// slowMessage is a message of the peer to slow memory.
func (h *host) slowMessage() wire.Packet {
	if h.q.Type() == ib.UD {
		return h.sendOnly(peerPSN)
	}
	p := request(wire.UCWriteOnly, peerPSN, make([]byte, 8))
	p.RETH = wire.RETH{VA: slowAddr, RKey: h.slowReg.Key(), Len: 8}
	return p
}

// sendOnly is a SEND of the peer, of 8 bytes.
func (h *host) sendOnly(psn ib.PSN) wire.Packet {
	p := request(WireService(h.q.Type()).Opcode(wire.OpSendOnly), psn, make([]byte, 8))
	p.DETH = wire.DETH{QKey: ourQKey, SrcQP: peerNum}
	return p
}

// postSend posts a SEND of 8 bytes.
func (h *host) postSend(id uint64, key ib.Key) bool {
	h.post(&ib.SendWR{
		ID: id, Opcode: ib.WRSend, Flags: ib.SendSignaled, SGL: []ib.SGE{{Addr: memAddr, Length: 8, LKey: key}},
		AH: ahNum, RemoteQPN: peerNum, RemoteQKey: ourQKey,
	})
	return true
}

// place executes placements.
func (h *host) place(late []mr.Placement) {
	for _, p := range late {
		old, err := p.Do()
		h.q.Placed(0, p.ID, old, err)
	}
}

// TestSentSaysMore checks that after Sent, Effects.Send is set when requests that waited for
// completions may be sent, and only then.
func TestSentSaysMore(t *testing.T) {
	h := serviceIn(t, ib.UC, ib.StateRTS)
	region, err := h.table.Register(h.pd, mr.Bytes(make([]byte, 8)), 0x1000, ib.RemoteInvalidate)
	h.must(err)
	var out [4]TxPacket
	step := func(packets int, more bool) {
		t.Helper()
		if n := h.q.NextPackets(0, out[:]); n != packets {
			t.Fatalf("%d packets, want %d", n, packets)
		}
		h.q.Sent(0)
		if got := h.q.Effects().Send; got != more {
			t.Fatalf("more to come: %v, want %v", got, more)
		}
	}
	step(0, false)
	h.postSend(1, h.region.Key())
	step(1, false)
	h.postSend(2, h.region.Key())
	h.post(&ib.SendWR{ID: 3, Opcode: ib.WRLocalInv, Flags: ib.SendSignaled, InvalidateKey: region.Key()})
	h.postSend(4, h.region.Key())
	step(1, true) // the invalidation waited for SEND 2
	step(1, false)
	if got, want := h.outcome(nil), "send 1 success, send 2 success, send 3 success, send 4 success"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestNothingCompletesBeforeSent checks that no request completes before Sent, whatever is
// behind it in the queue, since the payload of its packet is not copied yet.
func TestNothingCompletesBeforeSent(t *testing.T) {
	h := serviceIn(t, ib.UC, ib.StateRTS)
	w, err := h.table.AllocWindow(h.pd, ib.MWType1)
	h.must(err)
	h.postSend(1, h.region.Key())
	h.post(&ib.SendWR{ID: 2, Opcode: ib.WRBindMW, Flags: ib.SendSignaled, RKey: ib.NextKey(w.Key())})
	var out [4]TxPacket
	var wcs [4]ib.WC
	if n := h.q.NextPackets(0, out[:]); n != 1 || h.sendCQ.Poll(wcs[:]) != 0 {
		t.Fatalf("got %d packets, or completions before Sent, want one packet", n)
	}
	h.q.Sent(0)
	if n := h.sendCQ.Poll(wcs[:]); n != 2 || wcs[0].ID != 1 || wcs[1].ID != 2 {
		t.Errorf("got %d completions, %+v, want requests 1 and 2", n, wcs[:n])
	}
}

// TestSentIsForUnreliable checks that an RC request completes with the peer's ACK, not with
// Sent.
func TestSentIsForUnreliable(t *testing.T) {
	h := hostIn(t, ib.StateRTS)
	h.postSend(1, h.region.Key())
	if n := len(h.emit(0, 4)); n != 1 {
		t.Fatalf("got %d packets, want 1", n)
	}
	h.q.Sent(0)
	if h.q.Effects().Send {
		t.Error("there is more to send")
	}
	if got := h.outcome(nil); got != "-" {
		t.Errorf("before the ACK: got completion %q, want none", got)
	}
}

// TestDatagramHeader checks that the completion of a datagram says how to read the GRH in front of it.
func TestDatagramHeader(t *testing.T) {
	for first, want := range map[byte]uint8{0x00: ib.SLIPv4, 0x60: ib.SLIPv6, 0x6F: ib.SLIPv6} {
		h := serviceIn(t, ib.UD, ib.StateRTS)
		h.postRecv(&ib.RecvWR{ID: 1, SGL: []ib.SGE{h.sge(0, 100)}})
		p := request(wire.UDSendOnly, 0, nil)
		p.DETH = wire.DETH{QKey: h.q.attr.QKey, SrcQP: peerNum}
		h.q.HandleDatagram(0, &p, &[ib.GRHLen]byte{first})
		var wcs [2]ib.WC
		if n := h.recvCQ.Poll(wcs[:]); n != 1 || wcs[0].SL != want || wcs[0].Flags != ib.WCGRH {
			t.Errorf("a header that begins with %#x: %d completions, %+v, want SL %d", first, n, wcs[0], want)
		}
	}
}

// TestDatagramMarked: a datagram that has met congestion is counted, also if the QP does not accept it.
func TestDatagramMarked(t *testing.T) {
	h := serviceIn(t, ib.UD, ib.StateRTS)
	for _, ecn := range []wire.ECN{wire.NotECT, wire.ECT1, wire.ECT0, wire.CE} {
		p := request(wire.UDSendOnly, 0, nil)
		p.ECN = ecn
		h.handle(0, p)
	}
	if got := h.stats.ECNMarked; got != 1 {
		t.Errorf("four datagrams, one for each value of ECN: got %d marked, want 1", got)
	}
}

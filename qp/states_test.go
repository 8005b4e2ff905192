package qp

import (
	"fmt"
	"strings"
	"testing"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/mr"
	"github.com/goroce/goroce/wire"
)

// inputs are all inputs of a QP except Modify. Each is tried on a QP that has, as far
// as its state allows, SEND 1 in flight as PSN 100, receive 2 posted, and a WRITE of
// the peer, PSN 500, with an unfinished placement in slow memory.
var inputs = []struct {
	name string
	do   func(h *host, late []mr.Placement) (taken bool)
}{
	{"PostSend", func(h *host, _ []mr.Placement) bool {
		if !CanPostSend(h.q.State()) {
			return false
		}
		h.post(&ib.SendWR{ID: 3, Opcode: ib.WRSend, Flags: ib.SendSignaled, SGL: []ib.SGE{h.sge(0, 8)}})
		return true
	}},
	{"PostRecv", func(h *host, _ []mr.Placement) bool {
		if !CanPostRecv(h.q.State()) {
			return false
		}
		h.postRecv(&ib.RecvWR{ID: 4, SGL: []ib.SGE{h.sge(0, 8)}})
		return true
	}},
	{"request", func(h *host, _ []mr.Placement) bool {
		h.handle(0, request(wire.RCSendOnly, peerPSN+1, make([]byte, 8))) // after the WRITE
		return true
	}},
	{"response", func(h *host, _ []mr.Placement) bool {
		h.handle(0, ack(ourPSN, 1))
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
		for _, p := range late {
			old, err := p.Do()
			h.q.Placed(0, p.ID, old, err)
		}
		return true
	}},
	{"request, Placed", func(h *host, late []mr.Placement) bool {
		h.handle(0, request(wire.RCSendOnly, peerPSN+1, make([]byte, 8)))
		for _, p := range late {
			h.q.Placed(0, p.ID, 0, nil)
		}
		return true
	}},
	{"NextPackets", func(*host, []mr.Placement) bool { return true }},
}

// outcomes lists the outputs of each input in each state: packets, completions, events
// and changes of state. "-" means none; "refused" means that the verb returns an error.
var outcomes = map[ib.QPState]map[string]string{
	ib.StateReset: {
		"PostSend": "refused", "PostRecv": "refused", "request": "-", "response": "-",
		"timeout": "-", "early timeout": "-", "Placed": "-", "request, Placed": "-", "NextPackets": "-",
	},
	ib.StateInit: {
		"PostSend": "refused", "PostRecv": "-", "request": "-", "response": "-",
		"timeout": "-", "early timeout": "-", "Placed": "-", "request, Placed": "-", "NextPackets": "-",
	},
	ib.StateRTR: {
		"PostSend": "refused", "PostRecv": "-", "request": "-", "response": "-",
		"timeout": "-", "early timeout": "-", "Placed": "ACK 500",
		"request, Placed": "ACK 501, recv 2 success", "NextPackets": "-",
	},
	ib.StateRTS: {
		"PostSend": "SEND Only 101", "PostRecv": "-", "request": "-", "response": "send 1 success",
		"timeout": "SEND Only 100", "early timeout": "-", "Placed": "ACK 500",
		"request, Placed": "ACK 501, recv 2 success", "NextPackets": "-",
	},
	ib.StateSQD: {
		"PostSend": "-", "PostRecv": "-", "request": "-", "response": "send 1 success, send queue drained",
		"timeout": "SEND Only 100", "early timeout": "-", "Placed": "ACK 500",
		"request, Placed": "ACK 501, recv 2 success", "NextPackets": "-",
	},
	// SQE flushes send requests; receiving continues.
	ib.StateSQE: {
		"PostSend": "send 1 Work Request Flushed Error, send 3 Work Request Flushed Error",
		"PostRecv": "send 1 Work Request Flushed Error", "request": "-", "response": "-",
		"timeout": "-", "early timeout": "-", "Placed": "ACK 500",
		"request, Placed": "ACK 501, recv 2 success", "NextPackets": "-",
	},
	// In ERR the flush waits for the unfinished placement, and then includes what was
	// posted meanwhile.
	ib.StateErr: {
		"PostSend": "-", "PostRecv": "-", "request": "-", "response": "-",
		"timeout": "-", "early timeout": "-", "NextPackets": "-",
		"Placed":          "send 1 Work Request Flushed Error, recv 2 Work Request Flushed Error",
		"request, Placed": "send 1 Work Request Flushed Error, recv 2 Work Request Flushed Error",
	},
}

// TestStatesAndInputs tries every input in every state.
func TestStatesAndInputs(t *testing.T) {
	for state := range ib.QPState(ib.NumQPStates) {
		for _, in := range inputs {
			t.Run(fmt.Sprintf("%v/%s", state, in.name), func(t *testing.T) {
				h, late := inState(t, state)
				got := h.outcome(func() bool { return in.do(h, late) })
				if want := outcomes[state][in.name]; got != want {
					t.Errorf("%q, want %q", got, want)
				}
			})
		}
	}
}

// TestErrFlushesAtOnce checks that without unfinished placements, requests that are posted
// in ERR complete at once.
func TestErrFlushesAtOnce(t *testing.T) {
	h, late := inState(t, ib.StateErr)
	for _, p := range late {
		h.q.Placed(0, p.ID, 0, nil)
	}
	h.outcome(nil)
	got := h.outcome(func() bool { return inputs[0].do(h, nil) && inputs[1].do(h, nil) })
	if want := "send 3 Work Request Flushed Error, recv 4 Work Request Flushed Error"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// inState returns a QP in the given state, with work under way, and its unfinished
// placements.
func inState(t *testing.T, state ib.QPState) (*host, []mr.Placement) {
	h := newHost(t, ourNum)
	attr := goodAttr(peerNum, ourPSN, peerPSN)
	h.up(min(state, ib.StateRTS), attr)
	if state == ib.StateReset {
		h.up(ib.StateRTS, attr) // RESET as it is after use
	}
	if state != ib.StateInit {
		p := request(wire.RCWriteOnly, peerPSN, make([]byte, 8))
		p.RETH = wire.RETH{VA: slowAddr, RKey: h.slowReg.Key(), Len: 8}
		h.handle(0, p)
	}
	h.postRecv(&ib.RecvWR{ID: 2, SGL: []ib.SGE{h.sge(64, 8)}})
	late := h.placements()
	if CanPostSend(h.q.State()) {
		h.post(&ib.SendWR{ID: 1, Opcode: ib.WRSend, Flags: ib.SendSignaled, SGL: []ib.SGE{h.sge(0, 8)}})
	}
	h.outcome(nil) // sends SEND 1
	switch state {
	case ib.StateReset, ib.StateErr:
		h.must(h.modify(state, attr, 0))
	case ib.StateSQD:
		attr.SQDNotify = true
		h.must(h.modify(state, attr, ib.AttrSQDNotify))
	case ib.StateSQE:
		h.q.state = ib.StateSQE // RC never enters SQE by itself
	}
	if h.q.State() != state {
		t.Fatalf("got a QP in %v, want %v", h.q.State(), state)
	}
	return h, late
}

// outcome runs an input and lists its outputs.
func (h *host) outcome(input func() (taken bool)) (list string) {
	before := h.q.State()
	if input != nil && !input() {
		return "refused"
	}
	var out []string
	for _, p := range h.emit(1, 4) {
		name := strings.NewReplacer("RC ", "", "UC ", "", "UD ", "", "Acknowledge", "ACK").Replace(p.Opcode.String())
		if name == "ACK" && !p.AETH.Syndrome.IsAck() {
			name = "NAK"
		}
		out = append(out, fmt.Sprintf("%s %d", name, p.PSN))
	}
	var wcs [16]ib.WC
	for _, wc := range wcs[:h.sendCQ.Poll(wcs[:])] {
		out = append(out, fmt.Sprintf("send %d %v", wc.ID, wc.Status))
	}
	for _, wc := range wcs[:h.recvCQ.Poll(wcs[:])] {
		out = append(out, fmt.Sprintf("recv %d %v", wc.ID, wc.Status))
	}
	for _, e := range h.events() {
		if e != ib.EventCommEst {
			out = append(out, e.String())
		}
	}
	if after := h.q.State(); after != before {
		out = append(out, after.String())
	}
	if len(out) == 0 {
		return "-"
	}
	return strings.Join(out, ", ")
}

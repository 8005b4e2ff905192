package track

import (
	"fmt"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/wire"
)

// Verb is the operation of a message. It is an index into Stats.Messages.
type Verb uint8

// Verbs.
const (
	Send Verb = iota
	Write
	Read
	CompareSwap
	FetchAdd
	Flush
	AtomicWrite
	numVerbs = iota
)

// String returns the verb's name.
func (v Verb) String() string {
	return [numVerbs]string{"SEND", "WRITE", "READ", "CmpSwap", "FetchAdd", "FLUSH", "ATOMIC WRITE"}[v]
}

// verbOf returns the verb of a request packet.
func verbOf(op wire.Opcode) Verb {
	switch {
	case op.IsWrite():
		return Write
	case op.IsRead():
		return Read
	case op.Op() == wire.OpCompareSwap:
		return CompareSwap
	case op.Op() == wire.OpFetchAdd:
		return FetchAdd
	case op.Op() == wire.OpFlush:
		return Flush
	case op.Op() == wire.OpAtomicWrite:
		return AtomicWrite
	}
	return Send
}

// answered reports whether the verb has responses of its own, so that an ACK does not complete it.
func (v Verb) answered() bool { return v >= Read }

// Message is one SEND, WRITE, READ ... of a flow.
type Message struct {
	Verb Verb
	N    int // number among the messages of this verb in the flow, from 1
	// Total is the length in bytes if HasTotal is set. The length of a SEND is known at its last packet.
	Total    uint32
	HasTotal bool
	// Headless: the start is missing in the capture, so byte ranges count from the first packet that was seen.
	Headless bool

	bytes    uint32 // seen so far
	respNext ib.PSN // the next expected response, if the verb has any
	done     bool   // the last response has been seen
}

// String returns the verb and the number.
func (m *Message) String() string { return fmt.Sprintf("%v %d", m.Verb, m.N) }

// newMessage creates a message that begins with request packet p.
func (r *requests) newMessage(p *wire.Packet) *Message {
	v := verbOf(p.Opcode)
	r.counts[v]++
	m := &Message{Verb: v, N: r.counts[v], Headless: !p.Opcode.Starts(), respNext: p.PSN}
	if p.Opcode.Headers()&wire.HasRETH != 0 {
		m.Total, m.HasTotal = p.RETH.Len, true
	}
	return m
}

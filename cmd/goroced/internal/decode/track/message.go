package track

import (
	"fmt"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/wire"
)

// Verb is what a message does, in the specification's words.
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
	NumVerbs = iota
)

// String returns the verb's name.
func (v Verb) String() string {
	return [NumVerbs]string{"SEND", "WRITE", "READ", "CmpSwap", "FetchAdd", "FLUSH", "ATOMIC WRITE"}[v]
}

// verbOf returns the verb that a request packet belongs to.
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

// answered reports whether the verb has responses of its own, so that a plain
// acknowledge does not complete it.
func (v Verb) answered() bool { return v >= Read }

// Message is one SEND, WRITE, READ ... of a flow.
type Message struct {
	Verb Verb
	N    int // its number among the messages of this verb in the flow, from 1
	// Total is the length in bytes; HasTotal says that it is known: a SEND's is
	// not before its last packet.
	Total    uint32
	HasTotal bool
	// Headless: the capture lacks the beginning, so that byte ranges count from
	// the first packet seen.
	Headless bool

	bytes    uint32 // seen so far
	respNext ib.PSN // the response that comes next, if the verb has any
	done     bool   // the last response was seen
}

// String returns the verb and the number.
func (m *Message) String() string { return fmt.Sprintf("%v %d", m.Verb, m.N) }

// newMessage begins a message with request packet p.
func (r *requests) newMessage(p *wire.Packet) *Message {
	v := verbOf(p.Opcode)
	r.counts[v]++
	m := &Message{Verb: v, N: r.counts[v], Headless: !p.Opcode.Starts(), respNext: p.PSN}
	if p.Opcode.Headers()&wire.HasRETH != 0 {
		m.Total, m.HasTotal = p.RETH.Len, true
	}
	return m
}

package qp

import (
	"iter"
	"math/bits"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/mr"
)

// Effects lists what the owner of a QP has to do after an input, and in which order. A QP
// has no other way to ask its owner for something. (Package raft of etcd has the same idea
// and calls it Ready.)
type Effects struct {
	// Placements are writes to memory that is not direct, to be executed in this order
	// where blocking is allowed; the owner calls Placed for each. The list is valid until
	// the next input. The data lies in the buffers of the input: the owner copies it before
	// it reuses these buffers.
	Placements []mr.Placement

	// Fetches are reads of such memory; the owner calls Fetched for each. They may begin
	// when the packets of NextPackets have been copied: a fetch may overwrite the chunk that
	// holds the payload of such a packet. The list is valid until the next NextPackets; the
	// SGL and Buf of a fetch are valid until its Fetched.
	Fetches []Fetch

	// Events are for the application, which gets them after the completions of the input.
	// These are in the CQs already; Due lists the CQs and SRQs with an event.
	Events EventSet

	// State is the QP's state, for Front.SetState.
	State ib.QPState

	// Send says that NextPackets is to be called. Doorbell says that Doorbell is to be called
	// again: there is more to flush.
	Send, Doorbell bool

	// Taken is how many send requests NextPackets has taken out of the ring. With the packets
	// it tells how much work the call was.
	Taken int

	// Deadline is when HandleTimeout is to be called, and NextPackets after it; driver.Never
	// if only an input can change anything. Calling them too early does no harm.
	Deadline ib.Instant
}

// Effects returns what is to be done after the latest input: Modify, SetFlow, Doorbell,
// HandlePackets, HandleAlike, HandleDatagram, HandleTimeout, Placed, Fetched, or
// NextPackets followed by Sent or SendFailed. Placements, Fetches, Events, Send, Doorbell and
// Taken are returned only once.
func (q *QP) Effects() Effects {
	e := Effects{
		Placements: q.late.take(), Fetches: q.fetch.take(),
		Events: q.events, State: q.state, Send: q.send, Doorbell: q.ring, Taken: int(q.taken), Deadline: q.Deadline(),
	}
	q.events, q.send, q.ring, q.taken = 0, false, false, 0
	return e
}

// EventSet is a set of asynchronous events, a bit for each ib.EventType. An event that
// happens again before it is taken counts once.
type EventSet uint32

// All returns the events of the set.
func (s EventSet) All() iter.Seq[ib.EventType] {
	return func(yield func(ib.EventType) bool) {
		for ; s != 0; s &= s - 1 {
			if !yield(ib.EventType(bits.TrailingZeros32(uint32(s)))) {
				return
			}
		}
	}
}

func (q *QP) raise(t ib.EventType) { q.events |= 1 << t }

package qp

import (
	"iter"
	"math/bits"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/mr"
)

// Effects is what the owner of a QP has to do after an input, and before what. It is the
// only way in which a QP asks its owner for anything. (Package raft of etcd has the same
// idea and calls it Ready.)
type Effects struct {
	// Placements are writes to memory that is not direct, for somebody who may block, in
	// this order; each is answered with Placed. The list is valid until the next input.
	// Their data lies in the buffers of the input: the owner copies it before these
	// buffers are used for something else.
	Placements []mr.Placement

	// Fetches are reads of such memory, each to be answered with Fetched. They may begin
	// when the packets of NextPackets have been copied: what is read may lie where the
	// payload of one of these was. The list is valid until the next NextPackets; what a
	// fetch names is its own until the answer.
	Fetches []Fetch

	// Events are for the application, after the completions that the input has made:
	// these are in the CQs already, and Due lists the CQs and SRQs with an event.
	Events EventSet

	// State is what posting has to obey from now on (Front.SetState).
	State ib.QPState

	// Send says that NextPackets is to be called, and will say when there is no more.
	Send bool

	// Deadline is when HandleTimeout is to be called, and NextPackets after it; ib.Never
	// if only an input can change anything. An owner that looks too early does no harm.
	Deadline ib.Instant

	// Requests is the progress of what the requester sends, Answers that of the responses
	// to READs, atomics, FLUSH and ATOMIC WRITE, for an owner that judges from them
	// whether its packets arrive. They are valid until the next input.
	Requests, Answers *Progress
}

// Effects returns what is to be done after the input that has just been made: Modify,
// SetFlow, Doorbell, HandlePackets, HandleAlike, HandleDatagram, HandleTimeout, Placed,
// Fetched, or NextPackets with Sent or SendFailed behind it. What it returns once it
// returns no more.
func (q *QP) Effects() Effects {
	e := Effects{
		Placements: q.late.take(), Fetches: q.fetch.take(),
		Events: q.events, State: q.state, Send: q.send, Deadline: q.Deadline(),
		Requests: &q.req.progress, Answers: &q.resp.res.progress,
	}
	q.events, q.send = 0, false
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

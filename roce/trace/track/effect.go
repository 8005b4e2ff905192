package track

import (
	"fmt"
	"strings"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/trace"
	"github.com/goroce/goroce/wire"
)

// Kind is the role of a packet in its connection.
type Kind uint8

// Kinds.
const (
	Ignored           Kind = iota // not followed
	Datagram                      // UD, which has no connection
	Congestion                    // a congestion notification packet (CNP)
	Selective                     // a selective acknowledgement (SACK)
	Orphan                        // a response whose request is not in the capture
	New                           // a request with the expected PSN
	Gap                           // a request after PSNs that are missing in the capture
	Late                          // a request that fills such a gap, or an old one on UC
	Retransmission                // a request that has been seen before
	Ack                           // an ACK of something new
	DuplicateAck                  // an ACK of nothing new
	SequenceNAK                   // a NAK that asks for PSNs again
	RNR                           // an RNR NAK
	FatalNAK                      // a NAK that ends the connection
	Response                      // of READ, atomics, FLUSH, ATOMIC WRITE, with the expected PSN
	ResponseGap                   // a response after others that are missing in the capture
	DuplicateResponse             // a response that has been seen before
	numKinds          = iota
)

var kindText = [numKinds]string{"ignored", "datagram", "congestion", "sack", "orphan", "new", "gap", "late",
	"retransmission", "ack", "duplicate-ack", "nak-sequence", "rnr-nak", "nak", "response", "response-gap",
	"duplicate-response"}

// String returns the name of the kind.
func (k Kind) String() string { return kindText[k] }

// Problem reports whether such packets occur only if something goes wrong.
func (k Kind) Problem() bool {
	switch k {
	case Ignored, Datagram, Orphan, New, Ack, Response:
		return false
	}
	return true
}

// Effect is the effect of a packet on its connection. Packets are named by the numbers that Tracker.Add was given; 0 is
// none. Fields that do not belong to Kind are zero.
type Effect struct {
	Kind Kind
	Flow *Flow // the flow that the packet is in; nil if it is not followed

	Msg       *Message // the message that it is part of, or a response to
	From, To  uint32   // range of bytes in the message, To excluded
	Of        int      // the packet that it repeats, or the request that it answers
	Restarted bool     // a new connection of the same queue pairs begins here

	Missing      int    // number of PSNs before this packet that are missing in the capture
	MissingFirst ib.PSN // the first missing PSN

	Cause Cause // Retransmission: the reason
	Lost  int   // a packet that was captured, but had not arrived when this one was sent

	Handshake *Handshake // Datagram: a message of connection managers belongs to it
	Active    bool       // and is of its active side

	AckFirst, AckLast   int // the range of packets that it acknowledges
	DoneCount           int // number of messages that it completes
	DoneFirst, DoneLast *Message

	syndrome wire.Syndrome
	PSN      ib.PSN // NAKs: the expected PSN
	Result   uint64 // atomics: the value before the operation
}

// String describes the effect in a phrase.
func (e *Effect) String() string {
	var parts []string
	add := func(format string, args ...any) { parts = append(parts, fmt.Sprintf(format, args...)) }
	if e.Restarted {
		add("a new connection: its PSNs start anew")
	}
	switch e.Kind {
	case Congestion:
		add("congestion on the way to this queue pair's peer: send slower")
	case Selective:
		add("has arrived, beyond a gap: only what is missing goes again")
	case Orphan:
		add("answers what the capture does not show")
	case Ack:
		if e.AckFirst == 0 {
			add("acknowledges what the capture does not show")
		}
	case Late:
		add("LATE")
	case Retransmission:
		add("AGAIN: #%d, %v", e.Of, &e.Cause)
	case DuplicateAck:
		add("acknowledges nothing new")
	case SequenceNAK, RNR, FatalNAK:
		add("%s", e.nakText())
	case DuplicateResponse:
		add("AGAIN: #%d", e.Of)
	}
	if e.Missing > 0 {
		add("GAP: %s", psnRange(e.MissingFirst, e.Missing))
	}
	if e.Msg != nil {
		add("%s", e.messageText())
	}
	if e.AckFirst > 0 {
		add("%s", e.ackText())
	}
	switch {
	case e.Lost == 0:
	case e.Kind == Retransmission && e.Cause.Why.timed(): // the answer may have come while the request was sent again
		add("so #%d was late, or lost after its capture", e.Lost)
	default:
		add("so #%d was lost after its capture", e.Lost)
	}
	return strings.Join(parts, "; ")
}

// Note returns what an arrow with the packet's label does not show; "" if nothing is special about the packet. It is
// shorter than String, and equal for packets of a run, so that a ladder can fold them.
func (e *Effect) Note() string {
	if e.Missing > 0 || e.Restarted {
		return e.String()
	}
	switch e.Kind {
	case New, Response, SequenceNAK:
		return ""
	case Retransmission:
		if e.Cause.Why != WhyGoBack {
			return "again: " + e.Cause.String()
		}
		return "again"
	case DuplicateResponse:
		return "again"
	case Ack:
		return e.DoneText()
	}
	return e.String()
}

// psnRange formats n PSNs from first on.
func psnRange(first ib.PSN, n int) string {
	if n == 1 {
		return fmt.Sprintf("psn %d missing", first)
	}
	return fmt.Sprintf("psn %d..%d missing", first, first.Add(n-1))
}

// messageText says which part of which message the packet is.
func (e *Effect) messageText() string {
	s := e.Msg.String()
	if e.isResponse() {
		if e.Kind != DuplicateResponse {
			s += fmt.Sprintf(" (#%d)", e.Of)
		}
		if v := e.Msg.Verb; v == CompareSwap || v == FetchAdd {
			return s + fmt.Sprintf(", was %#x", e.Result)
		}
	}
	switch {
	case e.Msg.Headless:
		return s + ", begun before the capture"
	case e.Msg.HasTotal && e.From == 0 && e.To == e.Msg.Total:
		return s + fmt.Sprintf(", all %d B", e.To)
	case e.To == e.From:
		return s
	case e.Msg.HasTotal:
		return s + fmt.Sprintf(", bytes %d..%d of %d", e.From, e.To-1, e.Msg.Total)
	}
	return s + fmt.Sprintf(", bytes %d..%d", e.From, e.To-1)
}

func (e *Effect) isResponse() bool {
	return e.Kind == Response || e.Kind == ResponseGap || e.Kind == DuplicateResponse
}

// nakText says what a NAK asks for.
func (e *Effect) nakText() string {
	what := fmt.Sprintf("psn %d", e.PSN)
	if e.Of > 0 {
		what = fmt.Sprintf("#%d", e.Of)
	}
	switch e.Kind {
	case SequenceNAK:
		return "NAK: expected " + what + ", want it again"
	case RNR:
		return fmt.Sprintf("RNR: no receive posted for %s, wait %s", what,
			trace.Elapsed(wire.RNRDelay(e.syndrome.Code())))
	}
	return fmt.Sprintf("NAK: %s refused, %s; the connection is over", what,
		strings.TrimPrefix(e.syndrome.String(), "NAK, "))
}

// ackText says what a response acknowledges.
func (e *Effect) ackText() string {
	s := fmt.Sprintf("acknowledges #%d", e.AckFirst)
	if e.AckLast != e.AckFirst {
		s += fmt.Sprintf("..#%d", e.AckLast)
	}
	if done := e.DoneText(); done != "" {
		s += ", " + done
	}
	return s
}

// DoneText says which messages a response completes, "" if none.
func (e *Effect) DoneText() string {
	switch {
	case e.DoneCount == 0:
		return ""
	case e.DoneCount == 1:
		return fmt.Sprintf("completes %v", e.DoneLast)
	case e.DoneLast.Verb == e.DoneFirst.Verb && e.DoneLast.N-e.DoneFirst.N == e.DoneCount-1:
		return fmt.Sprintf("completes %v..%d", e.DoneFirst, e.DoneLast.N)
	}
	return fmt.Sprintf("completes %d messages up to %v", e.DoneCount, e.DoneLast)
}

package trace

import (
	"fmt"
	"slices"

	"github.com/goroce/goroce/ib"
)

// Ladder is a conversation between two sides. The zero value is an empty one, of sides without names.
type Ladder struct {
	Left   string  `json:"left"` // names of the sides
	Right  string  `json:"right"`
	Events []Event `json:"events"` // in the order in which they are drawn, whatever their times
}

// Event is one thing in a ladder.
//
// Texts may come from anywhere, a capture for example: [Ladder.Text] replaces what could steer a terminal.
type Event struct {
	Kind Kind       `json:"kind"`
	At   ib.Instant `json:"at_ns"`          // since any origin that is common to the ladder; not used for a Note
	Left bool       `json:"left"`           // Packet: the left side has sent it. Local: it is at the left side
	Text string     `json:"text"`           // for a Packet, Label or ShortLabel for example
	Lost bool       `json:"lost,omitempty"` // Packet: it does not arrive, so its arrow ends midway
	Note string     `json:"note,omitempty"` // Packet: an explanation; often empty
	// Problem marks an event that tells where a conversation goes wrong.
	Problem bool `json:"problem,omitempty"`
}

// Kind is the kind of an event.
type Kind uint8

// Kinds of events.
const (
	Packet Kind = iota // a packet from one side to the other
	Local              // an event of one side: a request posted, a completion, a timer
	Note               // a remark between the events before and after it
)

// kindNames are the kinds in JSON.
var kindNames = [...]string{"packet", "local", "note"}

// MarshalText implements encoding.TextMarshaler.
func (k Kind) MarshalText() ([]byte, error) {
	if int(k) >= len(kindNames) {
		return nil, fmt.Errorf("kind %d of an event is none of %v", k, kindNames)
	}
	return []byte(kindNames[k]), nil
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (k *Kind) UnmarshalText(text []byte) error {
	i := slices.Index(kindNames[:], string(text))
	if i < 0 {
		return fmt.Errorf("kind %q of an event is none of %v", text, kindNames)
	}
	*k = Kind(i)
	return nil
}

// Packet adds a packet that a side has sent, with a text such as that of [Label]. Lost, Note and Problem of the Event
// that it returns may be set until the next one is added.
func (l *Ladder) Packet(at ib.Instant, left bool, text string) *Event {
	return l.add(Event{Kind: Packet, At: at, Left: left, Text: text})
}

// Local adds an event of one side. It returns the Event as Packet does.
func (l *Ladder) Local(at ib.Instant, left bool, text string) *Event {
	return l.add(Event{Kind: Local, At: at, Left: left, Text: text})
}

// Note adds a remark. It returns the Event as Packet does.
func (l *Ladder) Note(text string) *Event { return l.add(Event{Kind: Note, Text: text}) }

func (l *Ladder) add(e Event) *Event {
	l.Events = append(l.Events, e)
	return &l.Events[len(l.Events)-1]
}

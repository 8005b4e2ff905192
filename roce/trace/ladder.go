package trace

import "github.com/goroce/goroce/ib"

// Ladder is a conversation between two sides. The zero value is an empty one, of sides without names.
type Ladder struct {
	Left, Right string  // names of the sides
	Events      []Event // in the order in which they are drawn, whatever their times
}

// Event is one thing in a ladder.
//
// Texts may come from anywhere, a capture for example: [Ladder.Text] replaces what could steer a terminal.
type Event struct {
	Kind Kind
	At   ib.Instant // nanoseconds since any origin that is common to the ladder; not used for a Note
	Left bool       // Packet: the left side has sent it. Local: it is at the left side
	Text string     // for a Packet, Label or ShortLabel for example
	Lost bool       // Packet: it does not arrive, so its arrow ends midway
	Note string     // Packet: an explanation; often empty
	// Problem marks an event that tells where a conversation goes wrong.
	Problem bool
}

// Kind is the kind of an event.
type Kind uint8

// Kinds of events.
const (
	Packet Kind = iota // a packet from one side to the other
	Local              // an event of one side: a request posted, a completion, a timer
	Note               // a remark between the events before and after it
)

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

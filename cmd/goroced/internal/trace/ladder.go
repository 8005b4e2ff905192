package trace

import (
	"io"
	"strings"
	"unicode"

	"github.com/goroce/goroce/cmd/goroced/internal/term"
	"github.com/goroce/goroce/ib"
)

// Options configure the drawing of a ladder.
type Options struct {
	// Terminal is what the ladder is drawn on. A width of less than 60 is taken as 60; ASCII draws with - | > < *
	// instead of Unicode box-drawing characters.
	term.Terminal
	// Fold shortens runs of more than Fold similar packets (same sender, operation and note, rising PSNs) to the first
	// packet and the number of the others. 0 draws all packets.
	Fold int
}

// minWidth is the least number of columns of a ladder.
const minWidth = 60

// Ladder collects the events of one conversation. Make it with NewLadder. Events
// are drawn in the order in which they were added.
type Ladder struct {
	left, right string
	opts        Options
	events      []event
}

// eventKind is the kind of an event.
type eventKind uint8

const (
	packetEvent eventKind = iota
	localEvent
	noteEvent
)

// event is one thing to draw.
type event struct {
	kind eventKind
	at   ib.Instant
	left bool // at, or sent by, the left side
	text string
	lost bool
	note string
}

// NewLadder returns an empty ladder between two sides.
func NewLadder(left, right string, opts Options) *Ladder {
	opts.Width = max(opts.Columns(), minWidth)
	return &Ladder{left: clean(left), right: clean(right), opts: opts}
}

// Packet adds a packet with a label, such as that of Label. The arrow of a lost packet ends midway. note explains the
// packet; it may be empty.
func (l *Ladder) Packet(at ib.Instant, fromLeft bool, label string, lost bool, note string) {
	l.events = append(l.events, event{kind: packetEvent, at: at, left: fromLeft, text: clean(label), lost: lost,
		note: clean(note)})
}

// Local adds an event of one side: a request posted, a completion, a timer.
func (l *Ladder) Local(at ib.Instant, left bool, text string) {
	l.events = append(l.events, event{kind: localEvent, at: at, left: left, text: clean(text)})
}

// Note adds a remark between the events added before and after it.
func (l *Ladder) Note(text string) {
	l.events = append(l.events, event{kind: noteEvent, text: clean(text)})
}

// WriteTo draws the ladder. More events may be added afterwards, to draw it again.
func (l *Ladder) WriteTo(w io.Writer) (int64, error) {
	d := newDrawing(l, fold(l.events, l.opts.Fold))
	n, err := io.WriteString(w, d.draw())
	return int64(n), err
}

// clean replaces characters that could move the cursor. Names and notes may come from a capture, and terminals
// interpret escape sequences.
func clean(s string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, s)
}

package trace

import (
	"strings"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/internal/cells"
)

// glyphs are the characters of a ladder, one cell each.
type glyphs struct {
	life, tailLeft, tailRight, dash, headRight, headLeft, dot, remark string
}

// The characters are in WGL4, which every terminal font has. Arrow heads that are also emoji are avoided.
var unicodeGlyphs = glyphs{"│", "├", "┤", "─", "►", "◄", "●", "┄"}

var asciiGlyphs = glyphs{"|", "|", "|", "-", ">", "<", "*", "."}

// lostMark ends the arrow of a lost packet.
const lostMark = "X"

// problemMark begins the line of an event with Problem.
const problemMark = "!"

// drawing is a ladder that is being drawn.
type drawing struct {
	left, right string
	events      []Event
	layout
	glyphs
	color  bool
	marked bool // the next row begins an event with Problem
	paint  bool // rows are painted
	out    strings.Builder
}

func newDrawing(l *Ladder, o TextOptions) *drawing {
	events := fold(cleaned(l.Events), o.Fold)
	d := &drawing{left: clean(l.Left), right: clean(l.Right), events: events, layout: measure(events, o.Width),
		glyphs: unicodeGlyphs, color: o.Color}
	if o.ASCII {
		d.glyphs = asciiGlyphs
	}
	return d
}

// draw returns the text of the ladder.
func (d *drawing) draw() string {
	d.header()
	clock := clock{}
	for i := range d.events {
		e := &d.events[i]
		when := ""
		if e.Kind != Note {
			when = clock.text(e.At)
		}
		d.marked, d.paint = e.Problem, e.Problem && d.color
		d.event(e, when)
	}
	return d.out.String()
}

// clock formats the time column.
type clock struct {
	started      bool
	origin, last ib.Instant
	shown        string
}

// text returns the time of a row: empty if it equals that of the row before, and "+" with the difference if three
// digits do not tell the two apart.
func (c *clock) text(at ib.Instant) string {
	if !c.started {
		c.started, c.origin, c.last = true, at, at
		return Elapsed(0)
	}
	since := at - c.last
	c.last = at
	text := Elapsed(int64(at - c.origin))
	switch {
	case since == 0:
		return ""
	case text == c.shown && since > 0:
		return "+" + Elapsed(int64(since))
	}
	c.shown = text
	return text
}

// header writes the name of each side at its lifeline.
func (d *drawing) header() {
	half := (d.inner + 1) / 2
	left := padRight(d.left, half)
	right := padLeft(d.right, d.inner+2-half-1)
	d.line(padLeft("time", timeCells) + strings.Repeat(" ", gapCells) + left + " " + right)
}

// event draws one event, which may take several rows.
func (d *drawing) event(e *Event, when string) {
	switch {
	case e.Kind == Note:
		for _, text := range cells.Wrap(e.Text, d.inner-arrowCells) {
			d.row("", d.life, center(" "+text+" ", d.inner, d.remark), d.life, "")
		}
	case e.Kind == Local:
		d.local(e, when)
	default:
		d.packet(e, when)
	}
}

// local draws text at one lifeline, with a dot.
func (d *drawing) local(e *Event, when string) {
	start, end := d.dot, d.life
	if !e.Left {
		start, end = d.life, d.dot
	}
	for _, text := range cells.Wrap(e.Text, d.inner-4) {
		d.row(when, start, d.aside(text, e.Left), end, "")
		when, start, end = "", d.life, d.life
	}
}

// packet draws an arrow with its label. Words of the label that do not fit follow on lines below, and so does the note
// if there is no column for notes.
func (d *drawing) packet(e *Event, when string) {
	label := cells.Wrap(e.Text, d.inner-arrowCells)
	notes := []string(nil)
	if e.Note != "" && d.notes > 0 {
		notes = cells.Wrap(e.Note, d.notes)
	}
	start, end := d.tailLeft, d.life
	if !e.Left {
		start, end = d.life, d.tailRight
	}
	body := d.arrow(label[0], e.Left, e.Lost)
	for label = label[1:]; ; label = label[1:] {
		note := ""
		if len(notes) > 0 {
			note, notes = notes[0], notes[1:]
		}
		d.row(when, start, body, end, note)
		when, start, end, body = "", d.life, d.life, strings.Repeat(" ", d.inner)
		if len(label) == 0 {
			break
		}
		body = center(label[0], d.inner, " ")
	}
	for _, note := range notes {
		d.row("", d.life, body, d.life, note)
	}
	if e.Note != "" && d.notes == 0 {
		for _, text := range cells.Wrap(e.Note, d.inner-arrowCells) {
			d.row("", d.life, d.aside("   "+text+"   ", e.Left), d.life, "")
		}
	}
}

// arrow returns the cells between the lifelines for a packet.
func (d *drawing) arrow(label string, fromLeft, lost bool) string {
	length, head := d.inner-1, d.headRight
	if !fromLeft {
		head = d.headLeft
	}
	if lost {
		length, head = min(max(d.inner*2/3, cells.Count(label)+arrowCells-3), d.inner-2), lostMark
	}
	shaft := center(" "+label+" ", length, d.dash)
	gap := strings.Repeat(" ", d.inner-length-1)
	if fromLeft {
		return shaft + head + gap
	}
	return gap + head + shaft
}

// aside returns the cells between the lifelines for text beside one of them.
func (d *drawing) aside(text string, left bool) string {
	if left {
		return padRight("  "+text, d.inner)
	}
	return padLeft(text+"  ", d.inner)
}

// row writes one row: body fills the cells between the lifelines.
func (d *drawing) row(when, start, body, end, note string) {
	s := padLeft(when, timeCells)
	if d.marked {
		s, d.marked = problemMark+padLeft(when, timeCells-1), false
	}
	s += strings.Repeat(" ", gapCells) + start + body + end
	if note != "" {
		s += strings.Repeat(" ", gapCells) + note
	}
	d.line(s)
}

// line writes s without trailing blanks.
func (d *drawing) line(s string) {
	if s = strings.TrimRight(s, " "); d.paint {
		s = "\x1b[1;31m" + s + "\x1b[0m" // bold red
	}
	d.out.WriteString(s)
	d.out.WriteByte('\n')
}

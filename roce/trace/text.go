package trace

import (
	"strings"
	"unicode"
)

// TextOptions configure [Ladder.Text]. The zero value is for a file or a pipe in UTF-8, 80 columns wide.
type TextOptions struct {
	Width int  // in columns; 0 stands for 80, and less than 60 for 60
	ASCII bool // draws with - | > < * in place of box-drawing characters
	Color bool // paints events with Problem, by escape sequences of ECMA-48
	// Fold shortens runs of more than Fold similar packets (same sender, operation and note, rising PSNs) to the first
	// packet and the number of the others. 0 draws all packets. Labels have to contain "psn=" and a decimal number, as
	// those of Label do; packets without it are similar if their labels are equal.
	Fold int
}

const (
	defaultWidth = 80
	minWidth     = 60
)

// Text draws the ladder, in lines that end with a newline. Events with Problem have a "!" at the start of their line.
func (l *Ladder) Text(o TextOptions) string {
	if o.Width <= 0 {
		o.Width = defaultWidth
	}
	o.Width = max(o.Width, minWidth)
	return newDrawing(l, o).draw()
}

// cleaned returns a copy of events with texts that are fit for a terminal.
func cleaned(events []Event) []Event {
	out := make([]Event, len(events))
	for i, e := range events {
		e.Text, e.Note = clean(e.Text), clean(e.Note)
		out[i] = e
	}
	return out
}

// clean replaces characters that could move the cursor, for terminals interpret escape sequences.
func clean(s string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, s)
}

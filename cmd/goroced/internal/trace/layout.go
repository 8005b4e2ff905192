package trace

import (
	"strings"
	"unicode/utf8"
)

// Columns, in cells. From the left: time, gap, left lifeline, the space between
// the lifelines, right lifeline; then gap and notes if there are notes and the
// terminal is wide enough.
const (
	timeCells = 9 // "-1.23 ms"
	gapCells  = 2

	minInner  = 40 // space between the lifelines
	wrapInner = 60 // labels do not wrap for the sake of notes in less than this
	minNotes  = 22 // a narrower column would wrap every other word
	// arrowCells is what an arrow needs beside its label: "── " and " ─►".
	arrowCells = 8
)

// layout is the width of the columns that depend on what is drawn.
type layout struct {
	inner int // between the lifelines
	notes int // right of them; 0 puts notes below their packet
}

// measure fits events into width cells: as narrow a ladder as the labels allow,
// and notes beside it rather than below it.
func measure(events []event, width int) layout {
	room := width - timeCells - gapCells - 2
	inner, notes := minInner, 0
	for i := range events {
		e := &events[i]
		if e.kind != noteEvent {
			inner = max(inner, cells(e.text)+arrowCells)
		}
		notes = max(notes, cells(e.note))
	}
	if notes == 0 {
		return layout{inner: min(inner, room)}
	}
	notes = min(notes, minNotes)
	// The longest labels may wrap if that makes room for the notes.
	beside := min(inner, max(room-gapCells-notes, wrapInner))
	if beside+gapCells+notes <= room {
		return layout{inner: beside, notes: room - gapCells - beside}
	}
	return layout{inner: min(max(inner, wrapInner), room)}
}

// cells returns how many columns s takes, one for each rune.
func cells(s string) int { return utf8.RuneCountInString(s) }

// wrap breaks s between words into lines of at most width cells; longer words
// are cut. It returns at least one line.
func wrap(s string, width int) []string {
	var lines []string
	line := ""
	for _, word := range strings.Fields(s) {
		for {
			if line != "" && cells(line)+1+cells(word) <= width {
				line += " " + word
				break
			}
			if line != "" {
				lines = append(lines, line)
			}
			if line = word; cells(word) <= width {
				break
			}
			cut := []rune(word)
			lines, line, word = append(lines, string(cut[:width])), "", string(cut[width:])
		}
	}
	if line != "" || lines == nil {
		lines = append(lines, line)
	}
	return lines
}

// padRight fills s up to width cells, cutting what is longer.
func padRight(s string, width int) string {
	if n := cells(s); n < width {
		return s + strings.Repeat(" ", width-n)
	}
	return string([]rune(s)[:width])
}

// padLeft is padRight with the text on the right.
func padLeft(s string, width int) string {
	if n := cells(s); n < width {
		return strings.Repeat(" ", width-n) + s
	}
	return string([]rune(s)[:width])
}

// center puts s into the middle of width cells of fill.
func center(s string, width int, fill string) string {
	space := max(width-cells(s), 0)
	return strings.Repeat(fill, space/2) + s + strings.Repeat(fill, space-space/2)
}

package trace

import (
	"strings"

	"github.com/goroce/goroce/internal/cells"
)

// Columns, in cells. From the left: time, gap, left lifeline, space between the lifelines, right lifeline; then gap and
// notes, if there are notes and the terminal is wide enough.
const (
	timeCells = 9 // "-1.23 ms"
	gapCells  = 2

	minInner  = 40 // space between the lifelines
	wrapInner = 60 // labels are not wrapped below this width to make room for notes
	minNotes  = 22 // a narrower column would wrap every other word
	// arrowCells is the width of an arrow without its label: "── " and " ─►".
	arrowCells = 8
)

// layout has the widths of the columns that depend on the events.
type layout struct {
	inner int // between the lifelines
	notes int // right of the right lifeline; 0 draws notes below their packet
}

// measure computes the layout of events for a width in cells: the narrowest ladder that holds the labels, with notes
// beside it if possible.
func measure(events []Event, width int) layout {
	room := width - timeCells - gapCells - 2
	inner, notes := minInner, 0
	for i := range events {
		e := &events[i]
		if e.Kind != Note {
			inner = max(inner, cells.Count(e.Text)+arrowCells)
		}
		notes = max(notes, cells.Count(e.Note))
	}
	if notes == 0 {
		return layout{inner: min(inner, room)}
	}
	notes = min(notes, minNotes)
	// Wrapping the longest labels may make room for the notes.
	beside := min(inner, max(room-gapCells-notes, wrapInner))
	if beside+gapCells+notes <= room {
		return layout{inner: beside, notes: room - gapCells - beside}
	}
	return layout{inner: min(max(inner, wrapInner), room)}
}

// padRight fills s up to width cells, cutting what is longer.
func padRight(s string, width int) string {
	if n := cells.Count(s); n < width {
		return s + strings.Repeat(" ", width-n)
	}
	return string([]rune(s)[:width])
}

// padLeft is padRight with the blanks on the left.
func padLeft(s string, width int) string {
	if n := cells.Count(s); n < width {
		return strings.Repeat(" ", width-n) + s
	}
	return string([]rune(s)[:width])
}

// center centers s in width cells of fill.
func center(s string, width int, fill string) string {
	space := max(width-cells.Count(s), 0)
	return strings.Repeat(fill, space/2) + s + strings.Repeat(fill, space-space/2)
}

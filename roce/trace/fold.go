package trace

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/goroce/goroce/ib"
)

// fold returns events with runs of more than limit similar packets shortened.
func fold(events []Event, limit int) []Event {
	if limit <= 0 {
		return events
	}
	var out []Event
	for len(events) > 0 {
		n := runLen(events)
		if n <= limit || n < 3 {
			out = append(out, events[:n]...)
		} else {
			out = append(out, events[0], folded(events[1:n]))
		}
		events = events[n:]
	}
	return out
}

// runLen returns how many of the first events, at least 1, are packets similar to the first.
func runLen(events []Event) int {
	n := 1
	for n < len(events) && similar(&events[n-1], &events[n]) {
		n++
	}
	return n
}

// similar reports whether packet b continues a run that packet a is in. The labels may differ after the PSN: lengths,
// addresses, message numbers.
func similar(a, b *Event) bool {
	if a.Kind != Packet || b.Kind != Packet || a.Left != b.Left || a.Lost != b.Lost || a.Note != b.Note ||
		a.Problem != b.Problem {
		return false
	}
	opA, psnA, okA := splitPSN(a.Text)
	opB, psnB, okB := splitPSN(b.Text)
	if !okA || !okB {
		return a.Text == b.Text
	}
	return opA == opB && psnB.After(psnA)
}

// folded returns the event that replaces a run.
func folded(run []Event) Event {
	first, last := &run[0], &run[len(run)-1]
	text := first.Text
	if op, from, ok := splitPSN(text); ok {
		_, to, _ := splitPSN(last.Text)
		text = fmt.Sprintf("%spsn=%d..%d", op, from, to)
	}
	e := *last
	e.Text = fmt.Sprintf("... %d more %s", len(run), text)
	return e
}

// splitPSN splits a label into the text before "psn=" and the number after it.
func splitPSN(label string) (op string, psn ib.PSN, ok bool) {
	op, rest, found := strings.Cut(label, "psn=")
	digits, _, _ := strings.Cut(rest, " ")
	v, err := strconv.ParseUint(digits, 10, 24)
	return op, ib.PSN(v), found && err == nil
}

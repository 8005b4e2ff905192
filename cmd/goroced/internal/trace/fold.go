package trace

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/goroce/goroce/ib"
)

// fold returns events with runs of more than limit similar packets shortened.
func fold(events []event, limit int) []event {
	if limit <= 0 {
		return events
	}
	var out []event
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
func runLen(events []event) int {
	n := 1
	for n < len(events) && similar(&events[n-1], &events[n]) {
		n++
	}
	return n
}

// similar reports whether packet b continues a run that packet a is in. The labels may differ after the PSN: lengths,
// addresses, message numbers.
func similar(a, b *event) bool {
	if a.kind != packetEvent || b.kind != packetEvent || a.left != b.left || a.lost != b.lost || a.note != b.note {
		return false
	}
	opA, psnA, okA := splitPSN(a.text)
	opB, psnB, okB := splitPSN(b.text)
	if !okA || !okB {
		return a.text == b.text
	}
	return opA == opB && psnB.After(psnA)
}

// folded returns the event that replaces a run.
func folded(run []event) event {
	first, last := &run[0], &run[len(run)-1]
	text := first.text
	if op, from, ok := splitPSN(text); ok {
		_, to, _ := splitPSN(last.text)
		text = fmt.Sprintf("%spsn=%d..%d", op, from, to)
	}
	e := *last
	e.text = fmt.Sprintf("... %d more %s", len(run), text)
	return e
}

// splitPSN splits a label into the text before "psn=" and the number after it.
func splitPSN(label string) (op string, psn ib.PSN, ok bool) {
	op, rest, found := strings.Cut(label, "psn=")
	digits, _, _ := strings.Cut(rest, " ")
	v, err := strconv.ParseUint(digits, 10, 24)
	return op, ib.PSN(v), found && err == nil
}

package decode

import (
	"bufio"
	"fmt"
	"strings"

	"github.com/goroce/goroce/cmd/goroced/internal/term"
	"github.com/goroce/goroce/internal/cells"
	"github.com/goroce/goroce/roce/trace"
	"github.com/goroce/goroce/roce/trace/track"
)

// textPrinter prints each packet on a line of its own, or where the terminal is too narrow for that, on two.
type textPrinter struct {
	w       *bufio.Writer
	term    term.Terminal
	verbose bool
	started bool
	route   int // column widths, those of the widest text so far
	label   int
}

const (
	// oneLine is the number of columns that a line for each packet needs.
	oneLine = 160

	minRoute = len("192.168.100.1 -> 192.168.100.2 qp 0x12")
	minLabel = len("SEND Middle psn=16777215 AckReq (1024 B)")
	maxLabel = 70 // longer labels shift the next column to the right
)

func (t *textPrinter) packet(p *packet) error {
	if !t.started {
		t.started, t.route, t.label = true, minRoute, minLabel
		t.header()
	}
	mark := " "
	if p.problem() {
		mark = "!"
	}
	lines := t.lines(mark, p)
	for _, line := range strings.Split(lines, "\n") {
		if p.problem() {
			line = t.term.Paint(line, term.Problem)
		}
		fmt.Fprintln(t.w, strings.TrimRight(line, " "))
	}
	if t.verbose {
		printFields(t.w, t.term, p)
	}
	return nil
}

func (t *textPrinter) header() {
	line := fmt.Sprintf("  packet     seconds  %-*s  icrc  %-*s  meaning", t.route, "from -> to", t.label, "says")
	if t.term.Columns() < oneLine {
		line = "  packet     seconds  icrc  says\n" + narrowIndent + "from -> to: meaning"
	}
	for line := range strings.SplitSeq(line, "\n") {
		fmt.Fprintln(t.w, t.term.Paint(line, term.Heading))
	}
}

// narrowIndent is before the second line of a packet.
const narrowIndent = "         "

// lines returns the lines of a packet.
func (t *textPrinter) lines(mark string, p *packet) string {
	route, label, meaning := route(p), label(p), meaning(p)
	head := fmt.Sprintf("%s %6d %11.6f  ", mark, p.num, float64(p.since)/1e9)
	if t.term.Columns() < oneLine {
		line := t.term.Hang(fmt.Sprintf("%s%-4v  ", head, p.icrc), label)
		if meaning != "" {
			route += ": " + meaning
		}
		if route != "" {
			line += "\n" + t.term.Hang(narrowIndent, route)
		}
		return line
	}
	t.route = max(t.route, len(route))
	t.label = min(max(t.label, len(label)), maxLabel)
	line := fmt.Sprintf("%s%-*s  %-4v  %-*s  ", head, t.route, route, p.icrc, t.label, label)
	if room := t.term.Columns() - cells.Count(line); cells.Count(meaning) > room && room < 30 {
		return t.term.Hang("", strings.TrimRight(line, " ")) + "\n" + t.term.Hang(narrowIndent, meaning)
	}
	return t.term.Hang(line, meaning)
}

func (t *textPrinter) summary(s *Summary) error {
	if t.started {
		fmt.Fprintln(t.w)
	}
	s.print(t.w, t.term)
	return nil
}

// route returns source and destination of a packet.
func route(p *packet) string {
	o := &p.frame.Outer
	switch {
	case p.err != nil && !p.located:
		return ""
	case p.err != nil:
		return fmt.Sprintf("%v -> %v", o.Src.Addr(), o.Dst.Addr())
	}
	return fmt.Sprintf("%v -> %v qp %#x", o.Src.Addr(), o.Dst.Addr(), uint32(p.pkt.DestQP))
}

// label describes the packet itself.
func label(p *packet) string {
	switch {
	case p.other:
		return fmt.Sprintf("not RoCEv2: %v", p.err)
	case p.err != nil:
		return fmt.Sprintf("malformed: %v", p.err)
	}
	return trace.Label(&p.pkt)
}

// meaning describes the effect of the packet, and problems.
func meaning(p *packet) string {
	if p.err != nil {
		return ""
	}
	if p.copyOf > 0 {
		return fmt.Sprintf("the same packet as #%d, %v", p.copyOf, p.dir)
	}
	s := p.effect.String()
	if p.effect.Kind == track.Datagram && !p.cut {
		name, says := madText(&p.pkt)
		if s = name; says != "" {
			s += ": " + says
		}
	}
	switch p.icrc {
	case icrcWrong:
		s = joinText("ICRC WRONG: receivers drop it", s)
	case icrcOtherID:
		s = joinText(s, fmt.Sprintf("ICRC right with IP ID %d, not %d: captured before it was numbered?", p.id,
			p.frame.Outer.ID))
	}
	if p.part > 0 {
		s = joinText(s, fmt.Sprintf("part %d of a run", p.part))
	}
	return s
}

// joinText joins two phrases with a semicolon, unless one is empty.
func joinText(a, b string) string {
	if a == "" || b == "" {
		return a + b
	}
	return a + "; " + b
}

package explain

import (
	"bufio"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/goroce/goroce/cmd/goroced/internal/similar"
	"github.com/goroce/goroce/cmd/goroced/internal/term"
	"github.com/goroce/goroce/cmd/goroced/internal/trace"
	"github.com/goroce/goroce/qp/script"
)

// groups are the groups of rules, in the order in which to read them.
var groups = []string{
	"sending", "acknowledging", "loss", "READ, atomics, FLUSH", "flow control", "errors", "states", "memory",
	"windows", "shared receives", "other services",
}

// List writes the names of all rules, by group, with a line about each.
func List(w io.Writer, t term.Terminal) error {
	byGroup := map[string][]*script.Script{}
	for _, name := range script.Names() {
		s, err := script.Load(name)
		if err != nil {
			return err
		}
		byGroup[s.Group] = append(byGroup[s.Group], s)
	}
	out := bufio.NewWriter(w)
	for i, group := range groups {
		if i > 0 {
			fmt.Fprintln(out)
		}
		fmt.Fprintln(out, t.Paint(group+":", term.Heading))
		for _, s := range byGroup[group] {
			fmt.Fprintln(out, t.Hang(fmt.Sprintf("  %-22s ", s.Name), s.Title))
		}
	}
	return out.Flush()
}

// Rule runs the script of a rule and writes it as a ladder. The error is an *UnknownError if there is no such rule, and
// a *script.Failure if the protocol behaves differently from the script.
func Rule(w io.Writer, name string, t term.Terminal) error {
	if !slices.Contains(script.Names(), name) {
		return &UnknownError{Name: name, Closest: similar.Closest(name, script.Names(), mostClose)}
	}
	s, err := script.Load(name)
	if err != nil {
		return err
	}
	p := &page{out: bufio.NewWriter(w), term: t}
	for _, line := range term.Wrap(s.Title, t.Columns()) {
		fmt.Fprintln(p.out, t.Paint(line, term.Heading))
	}
	fmt.Fprintln(p.out)
	for _, text := range s.Why {
		p.paragraph(text)
	}
	if err := s.Run(p.step); err != nil {
		return err
	}
	p.endScene()
	p.paragraph(legend)
	return p.out.Flush()
}

const legend = "1[0:1024] are bytes 0 to 1023 of message 1, R+8 is byte 8 of region R."

// page is the output of a rule: paragraphs, and a ladder for every scene.
type page struct {
	out    *bufio.Writer
	term   term.Terminal
	ladder *trace.Ladder
	prose  []string // paragraphs not written yet; the next step decides where they belong
}

// step handles a step of the script.
func (p *page) step(s script.Step) {
	switch s.Kind {
	case script.Prose:
		p.prose = append(p.prose, s.Text)
		return
	case script.Scene:
		p.scene(s)
		return
	}
	for _, text := range p.prose {
		p.ladder.Note(text)
	}
	p.prose = nil
	switch s.Kind {
	case script.Packet:
		p.ladder.Packet(s.At, s.Left, s.Text, s.Lost, s.Reason)
	case script.Local:
		p.ladder.Local(s.At, s.Left, withReason(plain(s.Text), s.Reason))
	case script.Quiet:
		p.ladder.Note(withReason(s.Text, s.Reason))
	}
}

// scene begins a new ladder. Paragraphs before it introduce it.
func (p *page) scene(s script.Step) {
	p.endScene()
	for _, text := range p.prose {
		p.paragraph(text)
	}
	p.prose = nil
	if s.Text != "" {
		p.paragraph("With " + s.Text + ":")
	}
	p.ladder = trace.NewLadder(s.Sides[0], s.Sides[1], trace.Options{Terminal: p.term})
}

// endScene draws the ladder.
func (p *page) endScene() {
	if p.ladder != nil {
		p.ladder.WriteTo(p.out) // errors are kept by the bufio.Writer until Flush
		fmt.Fprintln(p.out)
	}
}

// paragraph writes wrapped text and an empty line.
func (p *page) paragraph(text string) { fmt.Fprint(p.out, p.term.Hang("", text), "\n\n") }

// plain replaces abbreviations of scripts by words.
func plain(text string) string {
	verb, rest, _ := strings.Cut(text, " ")
	if long, ok := longVerbs[verb]; ok {
		return long + " " + rest
	}
	return text
}

var longVerbs = map[string]string{
	"wc": "completion:", "mem": "memory:", "event": "event:", "notify": "completion queue event:", "count": "counter:",
	"timer": "timer runs out in", "placed": "slow memory is written", "placing": "writes to slow memory:",
	"window": "packets that may be in flight:", "persisted": "made persistent:",
}

// withReason appends the script's reason for a step.
func withReason(text, reason string) string {
	if reason == "" {
		return text
	}
	return text + ": " + reason
}

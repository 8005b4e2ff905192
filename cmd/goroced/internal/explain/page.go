package explain

import (
	"bufio"
	"fmt"
	"io"

	"github.com/goroce/goroce/cmd/goroced/internal/term"
	"github.com/goroce/goroce/qp/script"
	"github.com/goroce/goroce/roce/trace"
)

// page is the output of a lesson: paragraphs, and a ladder for every scene.
type page struct {
	out    *bufio.Writer // keeps errors until Flush
	term   term.Terminal
	ladder *trace.Ladder
	prose  []string // paragraphs not written yet; the next step decides where they belong
}

func newPage(w io.Writer, t term.Terminal) *page { return &page{out: bufio.NewWriter(w), term: t} }

// paragraph writes wrapped text and an empty line.
func (p *page) paragraph(text string) { fmt.Fprint(p.out, p.term.Hang("", text), "\n\n") }

// line writes wrapped text behind a prefix.
func (p *page) line(prefix, text string) { fmt.Fprintln(p.out, p.term.Hang(prefix, text)) }

// begin begins a new ladder.
func (p *page) begin(left, right string) {
	p.endScene()
	p.ladder = &trace.Ladder{Left: left, Right: right}
}

// endScene draws the ladder.
func (p *page) endScene() {
	if p.ladder != nil {
		t := p.term
		fmt.Fprintln(p.out, p.ladder.Text(trace.TextOptions{Width: t.Columns(), ASCII: t.ASCII, Color: t.Color}))
	}
	p.ladder = nil
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
		arrow := p.ladder.Packet(s.At, s.Left, before(s.Text))
		arrow.Lost, arrow.Note = s.Lost, s.Reason
	case script.Local:
		p.ladder.Local(s.At, s.Left, withReason(plain(s.Text), s.Reason))
	case script.Quiet:
		p.ladder.Note(withReason(plain(s.Text), s.Reason))
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
	p.begin(s.Sides[0], s.Sides[1])
}

// withReason appends the script's reason for a step.
func withReason(text, reason string) string {
	if reason == "" {
		return text
	}
	return text + ": " + reason
}

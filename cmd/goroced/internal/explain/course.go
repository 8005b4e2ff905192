package explain

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/goroce/goroce/cmd/goroced/internal/term"
	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/ib/driver"
)

// ErrWrongAnswer: the answer to a question of the course is not right.
var ErrWrongAnswer = errors.New("that is not it")

// Chapters is how many chapters the course has.
func Chapters() int { return len(chapters) }

// Course writes the chapters of the course, in the order in which to read them.
func Course(w io.Writer, t term.Terminal) error {
	out := bufio.NewWriter(w)
	fmt.Fprintln(out, t.Paint("A course for who knows TCP:", term.Heading))
	for i := range chapters {
		c := &chapters[i]
		title := c.title
		if len(c.before) > 0 {
			title += " (after " + numbers(c.before) + ")"
		}
		fmt.Fprintln(out, t.Hang(fmt.Sprintf("  %2d  ", i+1), title))
	}
	const how = "`goroced explain --course 1` shows a chapter, `--course 1 --play` with its lessons."
	fmt.Fprint(out, "\n", t.Hang("", how), "\n")
	return out.Flush()
}

// Chapter writes chapter n, from 1; with play it runs the lessons, too. The error matches ib.ErrInvalid if there is no
// such chapter.
func Chapter(w io.Writer, n int, play bool, t term.Terminal) error {
	c, err := chapterAt(n)
	if err != nil {
		return err
	}
	all, err := lessons()
	if err != nil {
		return err
	}
	p := newPage(w, t)
	fmt.Fprintln(p.out, t.Paint(fmt.Sprintf("%d. %s", n, c.title), term.Heading))
	if len(c.before) > 0 {
		p.line("Read first: ", numbers(c.before))
	}
	fmt.Fprintln(p.out)
	for _, text := range c.text {
		p.paragraph(text)
	}
	p.paragraph("Words (`goroced explain --glossary WORD`): " + strings.Join(c.words, ", ") + ".")
	for _, name := range c.lessons {
		l := &all[slices.IndexFunc(all, func(l lesson) bool { return l.name == name })]
		if !play {
			p.line(fmt.Sprintf("  %-22s ", name), fmt.Sprintf("%s [%s]", l.title, l.rule))
			continue
		}
		if err := errors.Join(p.out.Flush(), l.write(w, t)); err != nil {
			return err
		}
	}
	if !play {
		fmt.Fprintln(p.out)
		p.paragraph(fmt.Sprintf("`goroced explain %s` shows a lesson, `goroced explain --course %d --play` all.",
			c.lessons[0], n))
	}
	c.exercises(p, n)
	return p.out.Flush()
}

// exercises writes what to do.
func (c *chapter) exercises(p *page, n int) {
	b := &c.breakIt
	p.paragraph("Break it yourself. " + b.about)
	fmt.Fprintln(p.out, "  "+strings.Join(b.commands(), "\n  ")+"\n")
	p.paragraph("The claim that is wrong after that is shown at its line, with what came instead.")
	p.paragraph("Question. " + c.ask.text)
	fmt.Fprintf(p.out, "  goroced explain --course %d --answer ...\n", n)
	if n < len(chapters) {
		fmt.Fprintf(p.out, "\nNext: `goroced explain --course %d`: %s\n", n+1, chapters[n].title)
	}
}

// commands returns the commands that make the change, and show what comes of it.
func (b *change) commands() []string {
	return []string{fmt.Sprintf("goroced explain --source %s |", b.lesson),
		fmt.Sprintf("    sed 's/%s/%s/' >my.txt", b.old, b.new), "goroced explain my.txt"}
}

// Answer checks an answer to the question of chapter n, and writes why it is right. The error matches ErrWrongAnswer if
// it is not, ib.ErrInvalid if there is no such chapter.
func Answer(w io.Writer, n int, answer string, t term.Terminal) error {
	c, err := chapterAt(n)
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(c.ask.answers, func(a string) bool { return letters(a) == letters(answer) }) {
		return fmt.Errorf("%q: %w; `goroced explain --course %d --play` shows the lessons", answer, ErrWrongAnswer, n)
	}
	text := "Right: " + c.ask.because
	if n < len(chapters) {
		text += fmt.Sprintf(" Next: `goroced explain --course %d`.", n+1)
	} else {
		text += " That was the last chapter."
	}
	_, err = fmt.Fprintln(w, t.Hang("", text))
	return err
}

// chapterAt returns chapter n, from 1.
func chapterAt(n int) (*chapter, error) {
	if n < 1 || n > len(chapters) {
		return nil, driver.Refuse("explain", "chapter", n, fmt.Sprintf("1 to %d", len(chapters)), ib.ErrInvalid)
	}
	return &chapters[n-1], nil
}

// numbers lists numbers of chapters.
func numbers(list []int) string {
	var words []string
	for _, n := range list {
		words = append(words, fmt.Sprint(n))
	}
	return strings.Join(words, ", ")
}

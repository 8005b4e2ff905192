package explain

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/goroce/goroce/cmd/goroced/internal/term"
	"github.com/goroce/goroce/internal/cells"
	"github.com/goroce/goroce/qp/script"
)

// lesson explains one rule: most run a script of qp/testdata, some other code that is not about a queue pair.
type lesson struct {
	name  string
	title string // the rule in one line
	group string
	rule  string   // whose it is: a key of badges
	why   []string // paragraphs that introduce it
	prose []string // all paragraphs, for searches
	show  func(p *page) error
}

// other lessons run code that is not package qp's.
var other = []lesson{format, handshake, helloRefused, multicast}

// lessons returns all lessons, sorted by name.
func lessons() ([]lesson, error) {
	all := slices.Clone(other)
	for _, name := range script.Names() {
		s, err := script.Load(name)
		if err != nil {
			return nil, err
		}
		all = append(all, ofScript(s))
	}
	slices.SortFunc(all, func(a, b lesson) int { return cmp.Compare(a.name, b.name) })
	return all, nil
}

// ofScript returns the lesson of a script.
func ofScript(s *script.Script) lesson {
	return lesson{name: s.Name, title: s.Title, group: s.Group, rule: s.Rule, why: s.Why, prose: s.Prose(),
		show: func(p *page) error {
			err := s.Run(p.step)
			p.endScene()
			if err == nil {
				p.paragraph(legend)
			}
			return err
		}}
}

// badges say whose a rule is.
var badges = map[string]string{
	"IBTA":   "a rule of the InfiniBand Architecture: every device keeps it",
	"Linux":  "IBTA leaves it open; it is as libibverbs and the kernel have it",
	"goroce": "IBTA leaves it open, and this is what goroce does; other devices may do otherwise, and work with it",
}

const legend = "1[0:1024] are bytes 0 to 1023 of message 1, R+8 is byte 8 of region R."

// write writes a lesson. What was shown before an error is written, too.
func (l *lesson) write(w io.Writer, t term.Terminal) error {
	p := newPage(w, t)
	for _, line := range cells.Wrap(l.title, t.Columns()) {
		fmt.Fprintln(p.out, t.Paint(line, term.Heading))
	}
	p.line("["+l.rule+"] ", badges[l.rule])
	fmt.Fprintln(p.out)
	for _, text := range l.why {
		p.paragraph(text)
	}
	err := l.show(p)
	if werr := p.out.Flush(); err == nil {
		err = werr
	}
	return err
}

// writeWithNext writes the lesson, and which one of all to read next.
func (l *lesson) writeWithNext(w io.Writer, t term.Terminal, all []lesson) error {
	if err := l.write(w, t); err != nil {
		return err
	}
	order := slices.Clone(all)
	slices.SortStableFunc(order, func(a, b lesson) int {
		return cmp.Compare(slices.Index(groups, a.group), slices.Index(groups, b.group))
	})
	i := slices.IndexFunc(order, func(o lesson) bool { return o.name == l.name }) + 1
	if i == len(order) {
		return nil
	}
	_, err := fmt.Fprintln(w, t.Hang("Next: ", fmt.Sprintf("`goroced explain %s`: %s", order[i].name, order[i].title)))
	return err
}

// find returns the lessons that have all words in their names and titles, and those that have them only in their text.
func find(all []lesson, words string) (about, mention []lesson) {
	for _, l := range all {
		if has(l.name+" "+l.title, words) {
			about = append(about, l)
		} else if has(strings.Join(append([]string{l.title}, append(l.why, l.prose...)...), " "), words) {
			mention = append(mention, l)
		}
	}
	return about, mention
}

// has reports whether text has all words, whatever their case and punctuation: "rkey" is in "an R_Key".
func has(text, words string) bool {
	text = letters(text)
	for word := range strings.FieldsSeq(words) {
		if !strings.Contains(text, letters(word)) {
			return false
		}
	}
	return true
}

// letters returns the ASCII letters, in lower case, the digits and the blanks of s.
func letters(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == ' ', '0' <= r && r <= '9', 'a' <= r && r <= 'z':
			return r
		case 'A' <= r && r <= 'Z':
			return r - 'A' + 'a'
		}
		return -1
	}, s)
}

package explain

import (
	"bufio"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/goroce/goroce/cmd/goroced/internal/similar"
	"github.com/goroce/goroce/cmd/goroced/internal/term"
	"github.com/goroce/goroce/docs"
)

// entry is a row of docs/glossary.md.
type entry struct {
	section string
	terms   []string // all that it explains
	meaning string
	source  string
}

// term returns the terms as the glossary has them.
func (e *entry) term() string { return strings.Join(e.terms, ", ") }

// is reports whether the entry explains a word.
func (e *entry) is(word string) bool {
	same := func(term string) bool { return letters(term) == letters(word) }
	return same(e.term()) || slices.ContainsFunc(e.terms, same)
}

// glossary returns the rows of docs/glossary.md.
func glossary() (list []entry) {
	text, _ := docs.Files.ReadFile("glossary.md") // it is embedded
	section := ""
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if title, ok := strings.CutPrefix(line, "## "); ok {
			section = title
		}
		cells := strings.Split(strings.Trim(line, "|"), "|")
		head := strings.TrimSpace(cells[0])
		if len(cells) != 3 || head == "term" || head == "word" || strings.HasPrefix(head, "-") {
			continue
		}
		e := entry{section: section, meaning: strings.TrimSpace(cells[1]), source: strings.TrimSpace(cells[2])}
		for term := range strings.FieldsFuncSeq(head, func(r rune) bool { return r == ',' || r == ';' }) {
			e.terms = append(e.terms, strings.TrimSpace(term))
		}
		list = append(list, e)
	}
	return list
}

// Glossary writes what a word means, and where the course and the rules speak of it; without a word, all that there
// are. The error is an *UnknownError if it has no such word.
func Glossary(w io.Writer, word string, t term.Terminal) error {
	entries := glossary()
	out := bufio.NewWriter(w)
	if letters(word) == "" {
		for i, e := range entries {
			if i == 0 || e.section != entries[i-1].section {
				fmt.Fprintln(out, t.Paint(e.section+":", term.Heading))
			}
			fmt.Fprintln(out, t.Hang("  ", e.term()))
		}
		return out.Flush()
	}
	i := slices.IndexFunc(entries, func(e entry) bool { return e.is(word) })
	if i < 0 {
		var names []string
		for _, e := range entries {
			names = append(names, e.terms...)
		}
		return &UnknownError{Kind: "word", Flag: " --glossary", Name: word,
			Closest: similar.Closest(word, names, mostClose)}
	}
	all, err := lessons()
	if err != nil {
		return err
	}
	e := &entries[i]
	fmt.Fprintln(out, t.Paint(e.term(), term.Heading))
	fmt.Fprintln(out, t.Hang("  ", e.meaning))
	if e.source != "none" && e.source != "none; our word" {
		fmt.Fprintln(out, t.Hang("  ", "Source: "+e.source))
	}
	for _, link := range e.links(all) {
		fmt.Fprintln(out, t.Hang("  ", link))
	}
	return out.Flush()
}

// mostLinks limits the rules that an entry names.
const mostLinks = 5

// links returns where more is said: chapters, rules, or else a document.
func (e *entry) links(all []lesson) (links []string) {
	for n := range chapters {
		if slices.ContainsFunc(chapters[n].words, e.is) {
			links = append(links, fmt.Sprintf("Chapter: `goroced explain --course %d`: %s", n+1, chapters[n].title))
		}
	}
	var names []string
	for _, word := range e.terms {
		about, mention := find(all, word)
		for _, l := range append(about, mention...) {
			if len(names) < mostLinks && !slices.Contains(names, l.name) {
				names = append(names, l.name)
			}
		}
	}
	if len(names) > 0 {
		links = append(links, "Rules (`goroced explain NAME`): "+strings.Join(names, ", "))
	}
	if len(links) == 0 {
		links = append(links, "Document: `goroced docs architecture`")
	}
	return links
}

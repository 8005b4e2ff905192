package explain

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/goroce/goroce/cmd/goroced/internal/term"
	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/qp/script"
)

// TestChapters: each chapter is after those that it needs, is printed within its width, and its lessons run.
func TestChapters(t *testing.T) {
	if len(chapters) != 12 {
		t.Errorf("%d chapters, want 12", len(chapters))
	}
	all := Rules()
	for i := range chapters {
		n, c := i+1, &chapters[i]
		for _, b := range c.before {
			if b < 1 || b >= n {
				t.Errorf("chapter %d is after %d, want one before it", n, b)
			}
		}
		for _, play := range []bool{false, true} {
			var out strings.Builder
			if err := Chapter(&out, n, play, term.Terminal{ASCII: true}); err != nil {
				t.Fatalf("chapter %d: %v", n, err)
			}
			for _, name := range c.lessons {
				if title := all[name]; title == "" || !strings.Contains(out.String(), title[:10]) {
					t.Errorf("chapter %d: lesson %s is not shown", n, name)
				}
			}
			if next := strings.Contains(out.String(), fmt.Sprintf("--course %d`: ", n+1)); next != (n < len(chapters)) {
				t.Errorf("chapter %d: it names the next one: %v, want %v", n, next, n < len(chapters))
			}
			for line := range strings.Lines(out.String()) {
				if cols := utf8.RuneCountInString(line) - 1; cols > 80 {
					t.Errorf("chapter %d: %d columns, want at most 80: %s", n, cols, line)
				}
			}
		}
	}
	for _, n := range []int{0, -1, len(chapters) + 1} {
		if err := Chapter(nil, n, false, term.Terminal{}); !errors.Is(err, ib.ErrInvalid) {
			t.Errorf("chapter %d: %v, want %v", n, err, ib.ErrInvalid)
		}
	}
}

// TestAnswers: right answers are right however they are written, others are not.
func TestAnswers(t *testing.T) {
	for i := range chapters {
		q := &chapters[i].ask
		for _, right := range q.answers {
			for _, a := range []string{right, strings.ToUpper(right), " " + right + "."} {
				var out strings.Builder
				if err := Answer(&out, i+1, strings.TrimSpace(a), term.Terminal{}); err != nil ||
					!strings.HasPrefix(out.String(), "Right: ") {
					t.Errorf("chapter %d, %q: %v, %q; want it right", i+1, a, err, out.String())
				}
			}
		}
		for _, wrong := range []string{"", "42", "maybe", q.answers[0] + "0"} {
			if err := Answer(nil, i+1, wrong, term.Terminal{}); !errors.Is(err, ErrWrongAnswer) {
				t.Errorf("chapter %d, %q: %v, want %v", i+1, wrong, err, ErrWrongAnswer)
			}
		}
	}
	if err := Answer(nil, 13, "1", term.Terminal{}); !errors.Is(err, ib.ErrInvalid) {
		t.Errorf("chapter 13: %v, want %v", err, ib.ErrInvalid)
	}
}

// TestBreakIt: each experiment changes its script, by a pattern without special characters, and shows a claim that is
// wrong after that.
func TestBreakIt(t *testing.T) {
	for i := range chapters {
		b := &chapters[i].breakIt
		if strings.ContainsAny(b.old+b.new, `/.*[]^$\&'`) {
			t.Errorf("chapter %d: %q and %q are no plain words for sed", i+1, b.old, b.new)
		}
		text, err := script.Source(b.lesson)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Contains(chapters[i].lessons, b.lesson) || !strings.Contains(text, b.old) {
			t.Errorf("chapter %d: want %q in its lesson %s", i+1, b.old, b.lesson)
		}
		path := filepath.Join(t.TempDir(), "my.txt")
		if err := os.WriteFile(path, []byte(strings.ReplaceAll(text, b.old, b.new)), 0o600); err != nil {
			t.Fatal(err)
		}
		var out strings.Builder
		var f *script.Failure
		if err := File(&out, path, term.Terminal{}); !errors.As(err, &f) || !strings.Contains(err.Error(), b.shows) {
			t.Errorf("chapter %d: %v, want a wrong claim, and %q", i+1, err, b.shows)
		}
	}
}

// TestGlossary: every word of the field is of a chapter, every word has a place that says more, and chapters have no
// other words.
func TestGlossary(t *testing.T) {
	entries := glossary()
	if len(entries) < 70 {
		t.Errorf("%d entries, want at least 70", len(entries))
	}
	for i := range entries {
		e := &entries[i]
		for _, word := range append(slices.Clone(e.terms), e.term()) {
			var out strings.Builder
			if err := Glossary(&out, word, term.Terminal{}); err != nil {
				t.Errorf("%q: %v", word, err)
			}
			if strings.Count(out.String(), "`goroced ") == 0 {
				t.Errorf("%q leads nowhere:\n%s", word, out.String())
			}
			if e.section != "Words of our own" && !strings.Contains(out.String(), "--course ") {
				t.Errorf("%q is of no chapter:\n%s", word, out.String())
			}
		}
	}
	for i := range chapters {
		for _, word := range chapters[i].words {
			if !slices.ContainsFunc(entries, func(e entry) bool { return e.is(word) }) {
				t.Errorf("chapter %d: the glossary has no %q", i+1, word)
			}
		}
	}
	var out strings.Builder
	if err := Glossary(&out, "", term.Terminal{}); err != nil || !strings.Contains(out.String(), "  PSN\n") {
		t.Errorf("the list: %v, want PSN in it\n%s", err, out.String())
	}
	err := Glossary(&out, "sydrome", term.Terminal{})
	if unknown := new(UnknownError); !errors.As(err, &unknown) || err.Error() !=
		"no word \"sydrome\", did you mean \"syndrome\"?; `goroced explain --glossary` lists all" {
		t.Errorf("a misspelling: %v", err)
	}
}

package script

import (
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/goroce/goroce/qp"
)

// Script is one protocol script.
type Script struct {
	Name  string   // file name without .txt
	Title string   // the rule in one line
	Group string   // its topic
	Rule  string   // whose rule it is: "IBTA", "Linux" or "goroce"
	Why   []string // the paragraphs before the first step
	file  string   // for failures
	lines []line
}

// line is a step, or a paragraph of prose.
type line struct {
	num    int
	prose  bool
	text   string
	reason string
}

// Names returns the names of all scripts, sorted.
func Names() []string {
	files, err := fs.Glob(qp.Lessons, "testdata/*.txt")
	if err != nil {
		panic(err) // the pattern is a constant
	}
	names := make([]string, len(files))
	for i, f := range files {
		names[i] = strings.TrimSuffix(path.Base(f), ".txt")
	}
	slices.Sort(names)
	return names
}

// Source returns the text of the script of the given name. The error wraps fs.ErrNotExist if there is none.
func Source(name string) (string, error) {
	text, err := fs.ReadFile(qp.Lessons, "testdata/"+name+".txt")
	if err != nil {
		return "", fmt.Errorf("load script: %w", err)
	}
	return string(text), nil
}

// Load returns the script of the given name. The error wraps fs.ErrNotExist if
// there is none.
func Load(name string) (*Script, error) {
	text, err := Source(name)
	if err != nil {
		return nil, err
	}
	return Parse("qp/testdata/"+name+".txt", text)
}

// rules are whose rules there are: the specification's; what it leaves open and libibverbs or the kernel has; and what
// only goroce does, of which a peer need not know.
var rules = []string{"IBTA", "Linux", "goroce"}

// maxText limits the length of a script in bytes.
const maxText = 1 << 20

// Parse parses the text of a script. The name of the file is for failures; without folder and .txt it is the script's.
func Parse(file, text string) (*Script, error) {
	s := &Script{Name: strings.TrimSuffix(path.Base(file), ".txt"), Rule: rules[0], file: file}
	if len(text) > maxText {
		return nil, s.fail(1, "", "a script has at most %d bytes", maxText)
	}
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	var ok bool
	if s.Title, ok = strings.CutPrefix(lines[0], "# "); !ok {
		return nil, s.fail(1, "", `the first line is "# " and the title`)
	}
	first := 1
	if len(lines) > 1 && strings.HasPrefix(lines[1], "group: ") {
		s.Group, first = strings.TrimPrefix(lines[1], "group: "), 2
	}
	if len(lines) > first && strings.HasPrefix(lines[first], "rule: ") {
		s.Rule = strings.TrimPrefix(lines[first], "rule: ")
		first++
		if !slices.Contains(rules, s.Rule) {
			return nil, s.fail(first, s.Rule, "whose rule it is: %s", strings.Join(rules, ", "))
		}
	}
	open := false // the line before is prose too
	for i, text := range lines[first:] {
		trimmed := strings.TrimSpace(text)
		switch {
		case trimmed == "":
			open = false
		case text[0] != ' ' && open:
			s.lines[len(s.lines)-1].text += " " + trimmed
		case text[0] != ' ':
			s.lines = append(s.lines, line{num: i + first + 1, prose: true, text: trimmed})
			open = true
		default:
			if err := s.addStep(i+first+1, trimmed); err != nil {
				return nil, err
			}
			open = false
		}
	}
	for len(s.lines) > 0 && s.lines[0].prose {
		s.Why = append(s.Why, s.lines[0].text)
		s.lines = s.lines[1:]
	}
	if len(s.Why) == 0 || len(s.lines) == 0 {
		return nil, s.fail(3, "", "a script has a paragraph that says why, and steps")
	}
	return s, nil
}

// Prose returns all paragraphs: Why, and those between the steps.
func (s *Script) Prose() []string {
	all := slices.Clone(s.Why)
	for _, l := range s.lines {
		if l.prose {
			all = append(all, l.text)
		}
	}
	return all
}

// addStep adds a step, or continues the reason of the step before.
func (s *Script) addStep(num int, text string) error {
	if more, ok := strings.CutPrefix(text, "-- "); ok {
		if len(s.lines) == 0 || s.lines[len(s.lines)-1].reason == "" {
			return s.fail(num, text, "a reason goes on here that did not begin")
		}
		s.lines[len(s.lines)-1].reason += " " + strings.TrimSpace(more)
		return nil
	}
	text, reason, _ := strings.Cut(text, " -- ")
	text = strings.Join(strings.Fields(text), " ")
	s.lines = append(s.lines, line{num: num, text: text, reason: strings.TrimSpace(reason)})
	return nil
}

// Failure is the error for a step whose claim is wrong, or for a malformed script.
type Failure struct {
	File string
	Line int
	Step string // the step that failed; may be empty in a malformed script
	Err  error  // what was expected and what happened
}

func (f *Failure) Error() string {
	if f.Step == "" {
		return fmt.Sprintf("%s:%d: %v", f.File, f.Line, f.Err)
	}
	return fmt.Sprintf("%s:%d: %s: %v", f.File, f.Line, f.Step, f.Err)
}

// Unwrap returns Err.
func (f *Failure) Unwrap() error { return f.Err }

func (s *Script) fail(num int, step, format string, args ...any) error {
	return &Failure{File: s.file, Line: num, Step: step, Err: fmt.Errorf(format, args...)}
}

// args holds the words of a step after its verb. Methods remove words from it. The
// first error is kept for done.
type args struct {
	words []string
	err   error
}

func newArgs(text string) *args { return &args{words: strings.Fields(text)} }

// next takes the first word; empty if there is none.
func (a *args) next() string {
	if len(a.words) == 0 {
		return ""
	}
	w := a.words[0]
	a.words = a.words[1:]
	return w
}

// flag takes a word from any position and reports whether it was there.
func (a *args) flag(word string) bool {
	for i, w := range a.words {
		if w == word {
			a.words = append(a.words[:i:i], a.words[i+1:]...)
			return true
		}
	}
	return false
}

// value takes the word "key=..." and returns the text after "=".
func (a *args) value(key string) (string, bool) {
	for i, w := range a.words {
		if v, ok := strings.CutPrefix(w, key+"="); ok {
			a.words = append(a.words[:i:i], a.words[i+1:]...)
			return v, true
		}
	}
	return "", false
}

// num takes the word "key=number", of at most the given bits.
func (a *args) num(key string, otherwise uint64, bits int) uint64 {
	v, ok := a.value(key)
	if !ok {
		return otherwise
	}
	n, err := strconv.ParseUint(v, 0, bits)
	if err != nil {
		a.wrong("%s is a number of %d bits, not %q", key, bits, v)
	}
	return n
}

// wrong records an error, unless there is one already.
func (a *args) wrong(format string, args ...any) {
	if a.err == nil {
		a.err = fmt.Errorf(format, args...)
	}
}

// done returns the recorded error, or one if words are left.
func (a *args) done() error {
	if a.err == nil && len(a.words) > 0 {
		return fmt.Errorf("%q means nothing here; doc.go lists the words", strings.Join(a.words, " "))
	}
	return a.err
}

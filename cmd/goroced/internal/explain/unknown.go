package explain

import (
	"fmt"
	"strings"
)

// UnknownError: there is no rule, or no word of the glossary, of that name.
type UnknownError struct {
	Kind    string // "rule" or "word"
	Flag    string // of the command that lists all, with a blank before it
	Name    string
	Closest []string // names that it may be a misspelling of, best first
}

func (e *UnknownError) Error() string {
	text := fmt.Sprintf("no %s %q", e.Kind, e.Name)
	if len(e.Closest) > 0 {
		text += fmt.Sprintf(", did you mean %q?", e.Closest[0])
	}
	if len(e.Closest) > 1 {
		text += fmt.Sprintf(" Like it: %s", strings.Join(e.Closest[1:], ", "))
	}
	return text + "; `goroced explain" + e.Flag + "` lists all"
}

// mostClose limits the names that an UnknownError suggests.
const mostClose = 3

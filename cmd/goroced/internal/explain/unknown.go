package explain

import (
	"fmt"
	"strings"
)

// UnknownError: there is no rule of that name.
type UnknownError struct {
	Name    string
	Closest []string // names that it may be a misspelling of, best first
}

func (e *UnknownError) Error() string {
	text := fmt.Sprintf("no rule %q", e.Name)
	if len(e.Closest) > 0 {
		text += fmt.Sprintf(", did you mean %q?", e.Closest[0])
	}
	if len(e.Closest) > 1 {
		text += fmt.Sprintf(" Like it: %s", strings.Join(e.Closest[1:], ", "))
	}
	return text + "; `goroced explain` lists all"
}

// mostClose limits the names that an UnknownError suggests.
const mostClose = 3

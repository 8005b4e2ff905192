package explain

import (
	"fmt"
	"strings"
)

// UnknownError: there is no rule of that name.
type UnknownError struct {
	Name    string
	Closest []string // similar names, best first
}

func (e *UnknownError) Error() string {
	return fmt.Sprintf("no rule %q, did you mean %q? Close to it are also %s; goroced explain without a name lists all",
		e.Name, e.Closest[0], strings.Join(e.Closest[1:], ", "))
}

// mostClose limits the names that an UnknownError suggests.
const mostClose = 3

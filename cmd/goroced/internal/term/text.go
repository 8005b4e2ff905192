package term

import (
	"strings"

	"github.com/goroce/goroce/internal/cells"
)

// minText is the least width of a column of text, however narrow the terminal is.
const minText = 20

// Hang returns text behind prefix, wrapped into lines that begin below the first letter of text. It does not end with a
// newline.
func (t Terminal) Hang(prefix, text string) string {
	indent := cells.Count(prefix)
	lines := cells.Wrap(text, max(t.Columns()-indent, minText))
	return prefix + strings.Join(lines, "\n"+strings.Repeat(" ", indent))
}

// Command returns a command of a shell behind prefix. It is continued after a backslash where it is too long, so that
// it can be copied.
func (t Terminal) Command(prefix, command string) string {
	const more = " \\"
	indent := cells.Count(prefix)
	room := max(t.Columns()-indent, minText)
	if indent+cells.Count(command) <= t.Columns() || strings.Contains(command, "'") {
		return prefix + command // within single quotes a backslash is a letter
	}
	lines := cells.Wrap(command, room-len(more))
	return prefix + strings.Join(lines, more+"\n"+strings.Repeat(" ", indent))
}

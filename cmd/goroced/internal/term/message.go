package term

import (
	"io"
	"strings"

	"github.com/goroce/goroce/internal/cells"
)

// Messages returns a writer to w for messages to people: whole lines with commands in backquotes. On a terminal they
// are broken as by Message.
func Messages(w io.Writer, getenv func(string) string) io.Writer {
	t := Of(w, getenv)
	if !t.Real {
		return w
	}
	return &messages{w, t}
}

type messages struct {
	w    io.Writer
	term Terminal
}

func (m *messages) Write(b []byte) (int, error) {
	var out strings.Builder
	for line := range strings.Lines(string(b)) {
		out.WriteString(m.term.Message(strings.TrimSuffix(line, "\n")) + "\n")
	}
	if _, err := io.WriteString(m.w, out.String()); err != nil {
		return 0, err
	}
	return len(b), nil
}

// Message returns a line with commands in backquotes. If it is wider than the terminal, the text is wrapped, and each
// command has a line of its own without the quotes, unbroken however long it is, so that it can be copied.
func (t Terminal) Message(line string) string {
	if cells.Count(line) <= t.Columns() {
		return line
	}
	const indent = "  "
	parts := strings.Split(line, "`")
	if len(parts)%2 == 0 { // one quote is missing
		parts = []string{line}
	}
	var lines []string
	for i, part := range parts {
		if i%2 == 1 {
			lines = append(lines, indent+indent+part)
		} else if text := strings.Trim(part, ",; "); text != "" {
			for _, s := range cells.Wrap(text, max(t.Columns()-len(indent), minText)) {
				lines = append(lines, indent+s)
			}
		}
	}
	return strings.TrimPrefix(strings.Join(lines, "\n"), indent)
}

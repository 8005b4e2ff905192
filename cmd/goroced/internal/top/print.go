package top

import (
	"io"
	"strings"
)

// Print writes the table once.
func Print(w io.Writer, v *View, rows []Row) error {
	rows = v.Select(rows)
	head, lines := v.lines(rows)
	_, err := io.WriteString(w, v.summary(rows)+"\n"+head+"\n"+strings.Join(append(lines, ""), "\n"))
	return err
}

package term

import (
	"strings"
	"unicode/utf8"
)

// minText is the least width of a column of text, however narrow the terminal is.
const minText = 20

// Cells returns the width of s: one cell for each rune.
func Cells(s string) int { return utf8.RuneCountInString(s) }

// Wrap breaks s between words into lines of at most width cells; longer words are cut. It returns at least one line.
func Wrap(s string, width int) []string {
	var lines []string
	line := ""
	for _, word := range strings.Fields(s) {
		for {
			if line != "" && Cells(line)+1+Cells(word) <= width {
				line += " " + word
				break
			}
			if line != "" {
				lines = append(lines, line)
			}
			if line = word; Cells(word) <= width {
				break
			}
			cut := []rune(word)
			lines, line, word = append(lines, string(cut[:width])), "", string(cut[width:])
		}
	}
	if line != "" || lines == nil {
		lines = append(lines, line)
	}
	return lines
}

// Hang returns text behind prefix, wrapped into lines that begin below the first letter of text. It does not end with a
// newline.
func (t Terminal) Hang(prefix, text string) string {
	indent := Cells(prefix)
	lines := Wrap(text, max(t.Columns()-indent, minText))
	return prefix + strings.Join(lines, "\n"+strings.Repeat(" ", indent))
}

// Command returns a command of a shell behind prefix. It is continued after a backslash where it is too long, so that
// it can be copied.
func (t Terminal) Command(prefix, command string) string {
	const more = " \\"
	indent := Cells(prefix)
	room := max(t.Columns()-indent, minText)
	if indent+Cells(command) <= t.Columns() || strings.Contains(command, "'") {
		return prefix + command // within single quotes a backslash is a letter
	}
	lines := Wrap(command, room-len(more))
	return prefix + strings.Join(lines, more+"\n"+strings.Repeat(" ", indent))
}

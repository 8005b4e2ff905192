// Package cells measures and breaks text for the columns of a terminal or a file. A rune takes one cell.
package cells

import (
	"strings"
	"unicode/utf8"
)

// Count returns the width of s.
func Count(s string) int { return utf8.RuneCountInString(s) }

// Wrap breaks s between words into lines of at most width cells, which must be at least 1; longer words are cut. It
// returns at least one line.
func Wrap(s string, width int) []string {
	var lines []string
	line := ""
	for _, word := range strings.Fields(s) {
		for {
			if line != "" && Count(line)+1+Count(word) <= width {
				line += " " + word
				break
			}
			if line != "" {
				lines = append(lines, line)
			}
			if line = word; Count(word) <= width {
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

package cells

import (
	"slices"
	"testing"
)

func TestWrap(t *testing.T) {
	for _, c := range []struct {
		text  string
		width int
		want  []string
	}{
		{"", 5, []string{""}},
		{"eins zwei drei fünf", 9, []string{"eins zwei", "drei fünf"}},
		{" blanks  do\nnot count ", 8, []string{"blanks", "do not", "count"}},
		{"a längerer b", 5, []string{"a", "länge", "rer b"}},
		{"abc", 1, []string{"a", "b", "c"}},
	} {
		got := Wrap(c.text, c.width)
		if !slices.Equal(got, c.want) {
			t.Errorf("Wrap(%q, %d) = %q, want %q", c.text, c.width, got, c.want)
		}
		for _, line := range got {
			if n := Count(line); n > c.width {
				t.Errorf("Wrap(%q, %d): line %q has %d cells, want at most as many", c.text, c.width, line, n)
			}
		}
	}
}

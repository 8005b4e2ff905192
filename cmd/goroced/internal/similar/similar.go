// Package similar finds the name that somebody meant who has misspelt it.
package similar

import (
	"cmp"
	"slices"
	"strings"
)

// Closest returns at most n of names, best first: those that word is a misspelling of, with at most a third of its
// letters, or two, wrong. If word is like a part of a name, one fewer may be wrong.
func Closest(word string, names []string, n int) []string {
	var out []string
	for _, c := range rank(word, names) {
		far := c.far + c.rest
		if far <= max(2, len(word)/3) && far < len(c.name) && len(out) < n {
			out = append(out, c.name)
		}
	}
	return out
}

// Meant returns the one of names that word is most likely a misspelling of, "" if there is none.
func Meant(word string, names []string) string {
	if list := Closest(word, names, 1); len(list) > 0 {
		return list[0]
	}
	return ""
}

// candidate is a name, and how many letters it is away.
type candidate struct {
	name string
	far  int
	rest int // 1 if only a part of the name is that close
}

// rank sorts names by their distance from word.
func rank(word string, names []string) []candidate {
	var list []candidate
	for _, n := range names {
		c := candidate{n, distance(word, n), 0}
		for part := range strings.SplitSeq(n, "-") { // "atomic" is closer to "atomic-cas" than to "sqd"
			if far := distance(word, part); far < c.far {
				c.far, c.rest = far, 1
			}
		}
		list = append(list, c)
	}
	slices.SortStableFunc(list, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(a.far, b.far), cmp.Compare(a.rest, b.rest))
	})
	return list
}

// distance returns the number of letters to insert, delete or change, or of neighbours to swap, to turn a into b (the
// optimal string alignment distance).
func distance(a, b string) int {
	var before []int // the row before row
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		next := make([]int, len(row))
		next[0] = i + 1
		for j := range len(b) {
			change := row[j]
			if a[i] != b[j] {
				change++
			}
			next[j+1] = min(change, row[j+1]+1, next[j]+1)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				next[j+1] = min(next[j+1], before[j-1]+1)
			}
		}
		before, row = row, next
	}
	return row[len(b)]
}

// Package similar finds the name that somebody meant who has misspelt it.
package similar

import (
	"cmp"
	"slices"
	"strings"
)

// Closest returns at most n of names, those that are most similar to word first.
func Closest(word string, names []string, n int) []string {
	list := rank(word, names)
	var out []string
	for _, c := range list[:min(n, len(list))] {
		out = append(out, c.name)
	}
	return out
}

// Meant returns the one of names that word is a misspelling of: at most a third of its letters, or two, are wrong. It
// returns "" if there is none.
func Meant(word string, names []string) string {
	list := rank(word, names)
	if len(list) == 0 || list[0].far > max(2, len(word)/3) || list[0].far >= len(list[0].name) {
		return ""
	}
	return list[0].name
}

// candidate is a name, and how many letters it is away.
type candidate struct {
	name string
	far  int
}

// rank sorts names by their distance from word.
func rank(word string, names []string) []candidate {
	var list []candidate
	for _, n := range names {
		far := distance(word, n)
		for part := range strings.SplitSeq(n, "-") { // "atomic" is closer to "atomic-cas" than to "sqd"
			far = min(far, distance(word, part)+1)
		}
		list = append(list, candidate{n, far})
	}
	slices.SortStableFunc(list, func(a, b candidate) int { return cmp.Compare(a.far, b.far) })
	return list
}

// distance returns the number of letters to insert, delete or change to turn a into b (Levenshtein).
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}

package explain

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// UnknownError: there is no rule of that name.
type UnknownError struct {
	Name    string
	Closest []string // similar names, best first
}

func (e *UnknownError) Error() string {
	return fmt.Sprintf("no rule %q; close to it: %s; goroced explain without a name lists all", e.Name,
		strings.Join(e.Closest, ", "))
}

// mostClose limits the names that an UnknownError suggests.
const mostClose = 3

// closest returns the names that are most similar to name.
func closest(name string, names []string) []string {
	type candidate struct {
		name string
		far  int
	}
	var list []candidate
	for _, n := range names {
		far := distance(name, n)
		for part := range strings.SplitSeq(n, "-") { // "atomic" is closer to "atomic-cas" than to "sqd"
			far = min(far, distance(name, part)+1)
		}
		list = append(list, candidate{n, far})
	}
	slices.SortStableFunc(list, func(a, b candidate) int { return cmp.Compare(a.far, b.far) })
	var out []string
	for _, c := range list[:min(mostClose, len(list))] {
		out = append(out, c.name)
	}
	return out
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

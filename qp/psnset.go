package qp

import (
	"slices"
	"sort"

	"github.com/goroce/goroce/ib"
)

// psnSet is a set of PSNs, all within half of the space of PSNs, in which they can be compared. What is lost, kept or
// sent again are a few ranges.
type psnSet struct {
	n    int        // PSNs
	runs []psnRange // in order; a PSN that is not in the set is between any two
}

// psnRange is the PSNs from from up to but not including to.
type psnRange struct{ from, to ib.PSN }

// common returns how many PSNs two ranges have in common.
func (a psnRange) common(b psnRange) int {
	from := laterPSN(a.from, b.from)
	if b.to.Before(a.to) {
		a.to = b.to
	}
	return max(a.to.Sub(from), 0)
}

// after returns the index of the first range that ends behind psn.
func (s *psnSet) after(psn ib.PSN) int {
	return sort.Search(len(s.runs), func(i int) bool { return psn.Before(s.runs[i].to) })
}

// add adds n PSNs from psn on and returns how many were not in the set.
func (s *psnSet) add(psn ib.PSN, n int) int {
	if n <= 0 {
		return 0
	}
	added, all, first := psnRange{psn, psn.Add(n)}, psnRange{psn, psn.Add(n)}, s.after(psn.Add(-1))
	next := first
	for ; next < len(s.runs) && !added.to.Before(s.runs[next].from); next++ {
		n -= added.common(s.runs[next])
		all.to = laterPSN(all.to, s.runs[next].to)
	}
	if next > first && s.runs[first].from.Before(psn) {
		all.from = s.runs[first].from
	}
	s.runs = slices.Replace(s.runs, first, next, all)
	s.n += n
	return n
}

// remove removes n PSNs from psn on and returns how many were in the set.
func (s *psnSet) remove(psn ib.PSN, n int) int {
	if s.n == 0 || n <= 0 {
		return 0
	}
	removed, first, had := psnRange{psn, psn.Add(n)}, s.after(psn), 0
	next := first
	for ; next < len(s.runs) && s.runs[next].from.Before(removed.to); next++ {
		had += removed.common(s.runs[next])
	}
	if had == 0 {
		return 0
	}
	var left [2]psnRange
	keep := left[:0]
	if s.runs[first].from.Before(psn) {
		keep = append(keep, psnRange{s.runs[first].from, psn})
	}
	if last := s.runs[next-1].to; removed.to.Before(last) {
		keep = append(keep, psnRange{removed.to, last})
	}
	s.runs = slices.Replace(s.runs, first, next, keep...)
	s.n -= had
	return had
}

// clear removes all PSNs.
func (s *psnSet) clear() { s.n, s.runs = 0, s.runs[:0] }

// run returns how many of n PSNs from psn on are like the first of them: all in the set, or all not. in says which.
func (s *psnSet) run(psn ib.PSN, n int) (length int, in bool) {
	if s.n == 0 || n == 0 {
		return n, false
	}
	i := s.after(psn)
	switch {
	case i == len(s.runs):
		return n, false
	case psn.Before(s.runs[i].from):
		return min(n, s.runs[i].from.Sub(psn)), false
	}
	return min(n, s.runs[i].to.Sub(psn)), true
}

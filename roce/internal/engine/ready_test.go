package engine

import (
	"slices"
	"testing"
)

// TestReadyQueues: QPs of a queue have consecutive turns, in order, but a queue that is never
// empty does not starve the others.
func TestReadyQueues(t *testing.T) {
	var l readyList
	var qs [12]QP
	for i := range qs {
		qs[i].peerShard = i % 3
		l.push(&qs[i])
		l.push(&qs[i]) // no effect: it is in the list already
	}
	l.remove(&qs[4])
	l.remove(&qs[4])
	var got []int
	for q := l.pop(); q != nil; q = l.pop() {
		for i := range qs {
			if q == &qs[i] {
				got = append(got, i)
			}
		}
	}
	if want := []int{0, 3, 6, 9, 1, 7, 10, 2, 5, 8, 11}; !slices.Equal(got, want) || !l.empty() {
		t.Errorf("turns of %v, want %v", got, want)
	}

	l.push(&qs[0])
	l.push(&qs[1])
	turns := 1
	for q := l.pop(); q != &qs[1]; q = l.pop() {
		l.push(q)
		turns++
	}
	if turns > 2*readyTurns {
		t.Errorf("the second queue has its turn after %d, want at most %d", turns, 2*readyTurns)
	}
}

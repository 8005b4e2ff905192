package runs

import (
	"slices"

	"github.com/goroce/goroce/roce/link"
)

// Queue is a FIFO of runs. Push copies a run's frames into a ring buffer, which grows as far as its limit and does not
// shrink. Pop returns runs that are valid until the next Pop. A Queue is not safe for concurrent use.
type Queue struct {
	maxRuns, maxBytes int

	ring []byte
	tail int // end of the newest run in ring

	// slots[first] is the oldest run that still occupies bytes; count runs start there, and the first lent of them have
	// been returned by Pop.
	slots              []slot
	first, count, lent int
}

type slot struct {
	run   link.Run
	start int // start of the run in ring
}

// NewQueue returns a queue for at most maxRuns runs with at most maxBytes in total. A run is contiguous, so the end of
// the ring may stay unused.
func NewQueue(maxRuns, maxBytes int) *Queue {
	return &Queue{maxRuns: maxRuns, maxBytes: maxBytes}
}

// A queue is at least as large as this from the first run on, unless its limits are lower.
const (
	minRuns  = 16
	minBytes = 16 << 10
)

// Len returns how many runs Pop can return.
func (q *Queue) Len() int { return q.count - q.lent }

// Push appends a copy of r, which must not be empty. It returns false if the queue has no room.
func (q *Queue) Push(r *link.Run) bool {
	start, ok := q.place(len(r.Buf))
	if q.count == len(q.slots) || !ok {
		if !q.grow(len(r.Buf)) {
			return false
		}
		if start, ok = q.place(len(r.Buf)); !ok {
			return false
		}
	}
	q.tail = start + copy(q.ring[start:], r.Buf)
	s := &q.slots[(q.first+q.count)%len(q.slots)]
	s.run, s.start = *r, start
	s.run.Buf = q.ring[start:q.tail:q.tail]
	q.count++
	return true
}

// grow makes room for another run, of n bytes, within the limits. It returns false if there are as many runs as there
// may be, or the ring is as large as it may be. Runs that the latest Pop has returned stay where they are as well.
func (q *Queue) grow(n int) bool {
	slots, bytes := len(q.slots), len(q.ring)
	if q.count == slots {
		slots = min(max(2*slots, minRuns), q.maxRuns)
	}
	if _, ok := q.place(n); !ok {
		bytes = min(max(2*bytes, 2*n, minBytes), q.maxBytes)
	}
	if slots == q.count || slots == len(q.slots) && bytes == len(q.ring) {
		return false
	}
	old := *q
	q.ring, q.slots, q.first, q.tail = make([]byte, bytes), make([]slot, slots), 0, 0
	for i := range q.count {
		s := &q.slots[i]
		*s = old.slots[(old.first+i)%len(old.slots)]
		start := q.tail
		q.tail += copy(q.ring[start:], s.run.Buf)
		s.run.Buf, s.start = q.ring[start:q.tail:q.tail], start
	}
	return true
}

// place returns the start of n contiguous free bytes of the ring.
func (q *Queue) place(n int) (start int, ok bool) {
	if q.count == 0 {
		return 0, n <= len(q.ring)
	}
	head := q.slots[q.first].start
	switch {
	case q.tail <= head: // wrapped: free up to the oldest run
		return q.tail, n <= head-q.tail
	case n <= len(q.ring)-q.tail:
		return q.tail, true
	default:
		return 0, n <= head
	}
}

// Pop frees the runs that the previous Pop has returned, and returns up to len(out) of the oldest runs.
func (q *Queue) Pop(out []link.Run) int {
	if q.count == 0 {
		return 0
	}
	q.first = (q.first + q.lent) % len(q.slots)
	q.count -= q.lent
	q.lent = min(len(out), q.count)
	for i := range q.lent {
		out[i] = q.slots[(q.first+i)%len(q.slots)].run
	}
	return q.lent
}

// Keep leaves the ring buffer to the runs of the latest Pop, and moves the others, if there are any, into a new one.
func (q *Queue) Keep() {
	if q.lent == 0 {
		return
	}
	q.first, q.count, q.lent = (q.first+q.lent)%len(q.slots), q.count-q.lent, 0
	if q.count == 0 {
		q.ring, q.tail = nil, 0
		return
	}
	q.ring = slices.Clone(q.ring)
	for i := range q.count {
		s := &q.slots[(q.first+i)%len(q.slots)]
		end := s.start + len(s.run.Buf)
		s.run.Buf = q.ring[s.start:end:end]
	}
}

package runs

import "github.com/goroce/goroce/roce/link"

// Queue is a FIFO of runs. Push copies a run's frames into one ring of bytes
// that is allocated when the queue is made; Pop lends runs out until the next
// Pop. It has no lock.
type Queue struct {
	ring []byte
	tail int // where the newest run ends in ring

	// slots[first] is the oldest run that still holds bytes; count runs start
	// there, of which the first lent are with the caller of Pop.
	slots              []slot
	first, count, lent int
}

type slot struct {
	run   link.Run
	start int // where the run starts in ring
}

// NewQueue returns a queue for at most maxRuns runs of maxBytes together. A run
// occupies contiguous bytes, so that the end of the ring may stay unused.
func NewQueue(maxRuns, maxBytes int) *Queue {
	return &Queue{ring: make([]byte, maxBytes), slots: make([]slot, maxRuns)}
}

// Len returns how many runs Pop can return.
func (q *Queue) Len() int { return q.count - q.lent }

// Push appends a copy of r, which must not be empty. It reports false, and does
// nothing, if the queue has no room.
func (q *Queue) Push(r *link.Run) bool {
	if q.count == len(q.slots) {
		return false
	}
	start, ok := q.place(len(r.Buf))
	if !ok {
		return false
	}
	q.tail = start + copy(q.ring[start:], r.Buf)
	s := &q.slots[(q.first+q.count)%len(q.slots)]
	s.run, s.start = *r, start
	s.run.Buf = q.ring[start:q.tail:q.tail]
	q.count++
	return true
}

// place returns where in the ring n contiguous bytes are free.
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

// Pop takes back what the previous Pop lent, and lends up to len(out) of the
// oldest runs.
func (q *Queue) Pop(out []link.Run) int {
	q.first = (q.first + q.lent) % len(q.slots)
	q.count -= q.lent
	q.lent = min(len(out), q.count)
	for i := range q.lent {
		out[i] = q.slots[(q.first+i)%len(q.slots)].run
	}
	return q.lent
}

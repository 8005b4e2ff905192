package engine

import (
	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/ib/driver"
)

// timerEntry is a QP's place in the heap of deadlines.
type timerEntry struct {
	at    ib.Instant
	index int // in the heap, plus one; 0 if not in it
}

// deadlines is a binary heap of QPs by deadline. It is lazy: want moves an entry only
// to an earlier time. An entry that is popped too early is put back, which is rare;
// deadlines that move to a later time with every packet cost nothing.
type deadlines []*QP

// earliest returns the first deadline; driver.Never if there is none.
func (h deadlines) earliest() ib.Instant {
	if len(h) == 0 {
		return driver.Never
	}
	return h[0].timer.at
}

// want makes sure that pop returns q at the time at or earlier.
func (h *deadlines) want(q *QP, at ib.Instant) {
	switch {
	case at == driver.Never || q.timer.index != 0 && q.timer.at <= at:
		return
	case q.timer.index == 0:
		*h = append(*h, q)
		q.timer.index = len(*h)
	}
	q.timer.at = at
	h.up(q.timer.index - 1)
}

// pop removes and returns the first QP that is due, nil if none is.
func (h *deadlines) pop(now ib.Instant) *QP {
	if h.earliest() > now {
		return nil
	}
	q := (*h)[0]
	h.remove(q)
	return q
}

func (h *deadlines) remove(q *QP) {
	if q.timer.index == 0 {
		return
	}
	i, last := q.timer.index-1, len(*h)-1
	h.swap(i, last)
	(*h)[last] = nil
	*h = (*h)[:last]
	q.timer.index = 0
	if i < last {
		h.down(i)
		h.up(i)
	}
}

func (h deadlines) swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].timer.index, h[j].timer.index = i+1, j+1
}

func (h deadlines) up(i int) {
	for i > 0 {
		parent := (i - 1) / 2
		if h[parent].timer.at <= h[i].timer.at {
			return
		}
		h.swap(i, parent)
		i = parent
	}
}

func (h deadlines) down(i int) {
	for {
		child := 2*i + 1
		if child >= len(h) {
			return
		}
		if child+1 < len(h) && h[child+1].timer.at < h[child].timer.at {
			child++
		}
		if h[i].timer.at <= h[child].timer.at {
			return
		}
		h.swap(i, child)
		i = child
	}
}

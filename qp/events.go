package qp

import (
	"math/bits"

	"github.com/goroce/goroce/ib"
)

// eventSet is a set of asynchronous events, a bit for each ib.EventType.
type eventSet uint32

func (q *QP) raise(t ib.EventType) { q.events |= 1 << t }

// TakeEvent returns an event that is due and forgets it; ok is false if there is
// none. An event that happens again before it is taken counts once.
func (q *QP) TakeEvent() (t ib.EventType, ok bool) {
	if q.events == 0 {
		return 0, false
	}
	t = ib.EventType(bits.TrailingZeros32(uint32(q.events)))
	q.events &^= 1 << t
	return t, true
}

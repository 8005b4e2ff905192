package wrap

import (
	"time"

	"github.com/goroce/goroce/ib"
)

// queue is a bottleneck, which packets leave one after the other.
type queue struct {
	rate   int64         // bits of IP packets in a second
	buffer time.Duration // a packet that would have to wait longer for its turn is lost
	clear  ib.Instant    // when the next packet can begin
}

// enter returns how long after now a packet of size bytes has left the queue. It returns false if the packet is lost.
func (q *queue) enter(now ib.Instant, size int) (time.Duration, bool) {
	start := max(now, q.clear)
	if time.Duration(start-now) > q.buffer {
		return 0, false
	}
	q.clear = start + ib.Instant(int64(size)*8*int64(time.Second)/q.rate)
	return time.Duration(q.clear - now), true
}

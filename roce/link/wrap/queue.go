package wrap

import (
	"sync/atomic"
	"time"

	"github.com/goroce/goroce/ib"
)

// queue is a bottleneck, which packets leave one after the other. Any goroutine may use it.
type queue struct {
	rate   int64         // bits of IP packets in a second
	buffer time.Duration // a packet that would have to wait longer for its turn is lost
	clear  atomic.Int64  // ib.Instant when the next packet can begin
}

// enter returns how long after now a packet of size bytes has left the queue. It returns false if the packet is lost.
func (q *queue) enter(now ib.Instant, size int) (time.Duration, bool) {
	for {
		old := q.clear.Load()
		start := max(now, ib.Instant(old))
		if time.Duration(start-now) > q.buffer {
			return 0, false
		}
		left := start + ib.Instant(int64(size)*8*int64(time.Second)/q.rate)
		if q.clear.CompareAndSwap(old, int64(left)) {
			return time.Duration(left - now), true
		}
	}
}

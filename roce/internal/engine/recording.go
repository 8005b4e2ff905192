package engine

import (
	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/qp"
	"github.com/goroce/goroce/roce/link"
)

// recorders is how many QPs of a device may have a flight recorder, of 8 KiB each. They are the device's own: 8 MiB, no
// matter how many QPs its applications have.
const recorders = 1024

// Recording is what the flight recorder of a QP has, also after the QP has ended. The zero value has nothing.
type Recording struct {
	shard *Shard
	ring  *qp.Ring
}

// Recording returns q's. The caller holds the lock of the shard.
func (q *QP) Recording() Recording { return Recording{q.shard, q.core.Recorder()} }

// Records returns a copy of the records, oldest first.
func (r Recording) Records() []qp.Record {
	if r.ring == nil {
		return nil
	}
	r.shard.mu.Lock()
	defer r.shard.mu.Unlock()
	return r.ring.Records()
}

// Path returns the addresses of the packets that a connected QP sends. The caller holds the lock of the shard.
func (q *QP) Path() link.Run { return q.path }

// Locked calls f under the lock of the shard. It returns false if the QP is closed.
func (q *QP) Locked(f func(core *qp.QP)) (open bool) {
	q.shard.mu.Lock()
	defer q.shard.mu.Unlock()
	if q.core == nil {
		return false
	}
	f(q.core)
	return true
}

// Now returns the time of the shard.
func (s *Shard) Now() ib.Instant {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.clock()
}

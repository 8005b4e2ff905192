package roce

import "github.com/goroce/goroce/ib"

// share is what one application, a tenant or this process, has of a shard. Ready
// applications take turns of so many packets, however many QPs each has, and none waits
// for room that another fills: each has its own accounts of the destinations.
type share struct {
	tenant Tenant // nil for this process
	qps    int
	ready  readyList
	flows  map[ib.GID]*flowEntry

	queued bool
	next   *share // in the schedule
	used   int    // packets of this turn
}

// shareTurn is how many packets one application may send before it is another's turn;
// a QP's turn that begins within them may end behind them.
const shareTurn = txPackets

// schedule is the queue of applications that have ready QPs.
type schedule struct {
	shares      map[Tenant]*share
	first, last *share
}

// enter returns the share of a tenant, for one more QP.
func (l *schedule) enter(t Tenant) *share {
	s := l.shares[t]
	if s == nil {
		s = &share{tenant: t, flows: map[ib.GID]*flowEntry{}}
		l.shares[t] = s
	}
	s.qps++
	return s
}

// leave takes back enter. The last QP that leaves has nothing ready, so the share has
// left the queue when it is its turn.
func (l *schedule) leave(s *share) {
	if s.qps--; s.qps == 0 {
		delete(l.shares, s.tenant)
	}
}

// push makes q ready.
func (l *schedule) push(q *QP) {
	s := q.share
	s.ready.push(q)
	if !s.queued {
		s.queued = true
		l.append(s)
	}
}

// pop returns the QP whose turn it is, nil if there is none.
func (l *schedule) pop() *QP {
	for s := l.first; s != nil; s = l.first {
		if s.used < shareTurn {
			if q := s.ready.pop(); q != nil {
				return q
			}
		}
		l.drop()
		if s.queued = !s.ready.empty(); s.queued {
			l.append(s)
		}
	}
	return nil
}

// charge counts what q has sent in its turn.
func (l *schedule) charge(q *QP, packets int) { q.share.used += packets }

// empty reports whether no application is in the queue.
func (l *schedule) empty() bool { return l.first == nil }

func (l *schedule) append(s *share) {
	if l.last == nil {
		l.first = s
	} else {
		l.last.next = s
	}
	l.last = s
}

// drop takes the first out, at the end of its turn.
func (l *schedule) drop() {
	s := l.first
	if l.first = s.next; l.first == nil {
		l.last = nil
	}
	s.next, s.used = nil, 0
}

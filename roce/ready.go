package roce

// readyLanes is how many shards a peer is thought to have.
const readyLanes = 4

// readyTurns is how many turns the QPs of a lane get before it is the next lane's.
const readyTurns = 64

// readyList is a queue of QPs that may have packets to send, each in it once.
//
// It has a lane for each shard that a peer may have, so that QPs whose packets go
// to the same one (link.ShardOf) have their turns one after the other. A run goes to
// one shard only: the peer's kernel hands it over whole, by its first frame, and
// frames for others in it would have to cross there, and be overtaken.
type readyList struct {
	lanes [readyLanes]readyLane
	at    int // the lane whose turn it is
	used  int // turns that its QPs have had
}

// readyLane is a queue of QPs.
type readyLane struct{ first, last *QP }

func (l *readyList) push(q *QP) {
	if q.inReady {
		return
	}
	q.inReady = true
	l.lanes[q.lane].push(q)
}

// pop returns the QP whose turn it is, nil if there is none.
func (l *readyList) pop() *QP {
	for range readyLanes {
		if l.used < readyTurns && l.lanes[l.at].first != nil {
			break
		}
		l.at, l.used = (l.at+1)%readyLanes, 0
	}
	l.used++
	return l.lanes[l.at].pop()
}

// empty reports whether no QP is ready.
func (l *readyList) empty() bool {
	for i := range l.lanes {
		if l.lanes[i].first != nil {
			return false
		}
	}
	return true
}

// remove takes q out, wherever it stands.
func (l *readyList) remove(q *QP) {
	if !q.inReady {
		return
	}
	lane := &l.lanes[q.lane]
	for n := lane.len(); n > 0; n-- {
		if p := lane.pop(); p != q {
			p.inReady = true
			lane.push(p)
		}
	}
}

func (l *readyLane) push(q *QP) {
	if l.last == nil {
		l.first = q
	} else {
		l.last.nextReady = q
	}
	l.last = q
}

func (l *readyLane) pop() *QP {
	q := l.first
	if q == nil {
		return nil
	}
	if l.first = q.nextReady; l.first == nil {
		l.last = nil
	}
	q.nextReady, q.inReady = nil, false
	return q
}

func (l *readyLane) len() int {
	n := 0
	for q := l.first; q != nil; q = q.nextReady {
		n++
	}
	return n
}

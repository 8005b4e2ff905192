package engine

// peerShards is how many shards a peer is assumed to have.
const peerShards = 4

// readyTurns is how many turns the QPs of one queue get before the next queue follows.
const readyTurns = 64

// readyList holds the QPs that may have packets to send, each at most once.
//
// It has a queue for each shard that a peer may have, so that QPs whose packets go
// to the same shard (link.ShardOf) have consecutive turns. A run goes to one shard
// only: the peer's kernel delivers it as a whole, to the shard of its first frame.
// Frames for other shards would go through mailboxes there, and could be overtaken.
type readyList struct {
	queues [peerShards]readyQueue
	at     int // the queue whose turn it is
	used   int // turns that the queue's QPs have had
}

// readyQueue is a queue of QPs.
type readyQueue struct{ first, last *QP }

func (l *readyList) push(q *QP) {
	if q.inReady {
		return
	}
	q.inReady = true
	l.queues[q.peerShard].push(q)
}

// pop returns the QP whose turn it is and removes it; nil if there is none.
func (l *readyList) pop() *QP {
	for range peerShards {
		if l.used < readyTurns && l.queues[l.at].first != nil {
			break
		}
		l.at, l.used = (l.at+1)%peerShards, 0
	}
	l.used++
	return l.queues[l.at].pop()
}

// empty reports whether no QP is ready.
func (l *readyList) empty() bool {
	for i := range l.queues {
		if l.queues[i].first != nil {
			return false
		}
	}
	return true
}

// remove removes q from the list, wherever it is.
func (l *readyList) remove(q *QP) {
	if !q.inReady {
		return
	}
	queue := &l.queues[q.peerShard]
	for n := queue.len(); n > 0; n-- {
		if p := queue.pop(); p != q {
			p.inReady = true
			queue.push(p)
		}
	}
}

func (l *readyQueue) push(q *QP) {
	if l.last == nil {
		l.first = q
	} else {
		l.last.nextReady = q
	}
	l.last = q
}

func (l *readyQueue) pop() *QP {
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

func (l *readyQueue) len() int {
	n := 0
	for q := l.first; q != nil; q = q.nextReady {
		n++
	}
	return n
}

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
	queues [peerShards]queue
	at     int // the queue whose turn it is
	used   int // turns that the queue's QPs have had
}

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
	q := l.queues[l.at].pop()
	if q != nil {
		q.inReady = false
	}
	return q
}

// empty reports whether no QP is ready.
func (l *readyList) empty() bool {
	for i := range l.queues {
		if !l.queues[i].empty() {
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
	q.inReady = false
	l.queues[q.peerShard].remove(q)
}

// queue is a list of QPs. A QP may be in one queue of each kind.
type queue struct {
	of          list
	first, last *QP
}

// list is a kind of queue.
type list uint8

const (
	sendList list = iota
	rungList
	numLists
)

func (l *queue) push(q *QP) {
	if l.last == nil {
		l.first = q
	} else {
		l.last.next[l.of] = q
	}
	l.last = q
}

// pop returns the first QP and removes it; nil if there is none.
func (l *queue) pop() *QP {
	q := l.first
	if q == nil {
		return nil
	}
	if l.first = q.next[l.of]; l.first == nil {
		l.last = nil
	}
	q.next[l.of] = nil
	return q
}

func (l *queue) empty() bool { return l.first == nil }

// remove removes q, wherever it is in the queue.
func (l *queue) remove(q *QP) {
	kept := queue{of: l.of}
	for p := l.pop(); p != nil; p = l.pop() {
		if p != q {
			kept.push(p)
		}
	}
	*l = kept
}

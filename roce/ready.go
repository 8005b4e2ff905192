package roce

// readyList is a queue of QPs that may have packets to send, each in it once.
type readyList struct {
	first, last *QP
}

func (l *readyList) push(q *QP) {
	if q.inReady {
		return
	}
	q.inReady = true
	if l.last == nil {
		l.first = q
	} else {
		l.last.nextReady = q
	}
	l.last = q
}

// pop returns the first QP, nil if there is none.
func (l *readyList) pop() *QP {
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

// remove takes q out, wherever it stands.
func (l *readyList) remove(q *QP) {
	for n := l.len(); n > 0; n-- {
		if p := l.pop(); p != q {
			l.push(p)
		}
	}
}

func (l *readyList) len() int {
	n := 0
	for q := l.first; q != nil; q = q.nextReady {
		n++
	}
	return n
}

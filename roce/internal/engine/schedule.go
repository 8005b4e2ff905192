package engine

import "github.com/goroce/goroce/ib"

// app is the state of one application on a shard. Ready applications take turns of AppTurn
// packets, however many QPs each has. Each application has congestion accounts of its own, so
// none waits for a congestion window that another fills.
type app struct {
	key   any // nil for this process
	qps   int
	ready readyList
	flows map[ib.GID]*flow

	queued bool
	next   *app // in the schedule
	used   int  // packets sent in this turn
}

// AppTurn is how many packets one application may send before the next one's turn. A QP's
// turn that begins within this number may exceed it.
const AppTurn = txPackets

// schedule is the queue of applications that have ready QPs.
type schedule struct {
	apps        map[any]*app
	first, last *app
}

// enter returns the application with a key, and counts one more QP of it.
func (l *schedule) enter(key any) *app {
	a := l.apps[key]
	if a == nil {
		a = &app{key: key, flows: map[ib.GID]*flow{}}
		l.apps[key] = a
	}
	a.qps++
	return a
}

// leave counts one QP less. An application without QPs has none ready, so pop removes it from
// the queue when its turn comes.
func (l *schedule) leave(a *app) {
	if a.qps--; a.qps == 0 {
		delete(l.apps, a.key)
	}
}

// push makes q ready.
func (l *schedule) push(q *QP) {
	a := q.app
	a.ready.push(q)
	if !a.queued {
		a.queued = true
		l.append(a)
	}
}

// pop returns the QP whose turn it is and removes it; nil if there is none.
func (l *schedule) pop() *QP {
	for a := l.first; a != nil; a = l.first {
		if a.used < AppTurn {
			if q := a.ready.pop(); q != nil {
				return q
			}
		}
		l.drop()
		if a.queued = !a.ready.empty(); a.queued {
			l.append(a)
		}
	}
	return nil
}

// charge adds packets that q has sent to its application's turn.
func (l *schedule) charge(q *QP, packets int) { q.app.used += packets }

// empty reports whether no application is in the queue.
func (l *schedule) empty() bool { return l.first == nil }

func (l *schedule) append(a *app) {
	if l.last == nil {
		l.first = a
	} else {
		l.last.next = a
	}
	l.last = a
}

// drop removes the first application at the end of its turn.
func (l *schedule) drop() {
	a := l.first
	if l.first = a.next; l.first == nil {
		l.last = nil
	}
	a.next, a.used = nil, 0
}

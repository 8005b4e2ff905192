package engine

import "github.com/goroce/goroce/ib"

// app is the state of one application on a shard. Ready applications take turns of AppTurn
// packets, however many QPs each has, and its peers take turns of as many within these. Each
// application has congestion accounts of its own, so none waits for a congestion window that
// another fills.
type app struct {
	key   any // nil for this process
	qps   int
	flows map[ib.GID]*flow

	ready lane  // among the applications that have ready QPs
	peers lanes // its peers that have ready QPs
	rest  peer  // of UC and UD QPs, and those without a peer

	ringing lane  // among the applications whose doorbells have rung
	rung    queue // its QPs whose doorbells have rung
}

// peer holds the ready QPs of an application that are connected to one address.
type peer struct {
	lane  lane
	ready readyList
}

func (p *peer) init() { p.lane.of = &p.ready }

// schedule says which QP is next: to send, and to have its doorbell taken.
type schedule struct {
	apps  map[any]*app
	ready lanes // applications with ready QPs
	rung  lanes // applications with QPs whose doorbells have rung
}

func newSchedule() schedule {
	return schedule{apps: map[any]*app{}, ready: lanes{share: AppTurn}, rung: lanes{share: appRings}}
}

// enter returns the application with a key, and counts one more QP of it.
func (l *schedule) enter(key any) *app {
	a := l.apps[key]
	if a == nil {
		a = &app{key: key, flows: map[ib.GID]*flow{}, peers: lanes{share: AppTurn}, rung: queue{of: rungList}}
		a.ready.of, a.ringing.of = &a.peers, &a.rung
		a.rest.init()
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
	if q.inReady {
		return
	}
	q.peer.ready.push(q)
	q.app.peers.push(&q.peer.lane)
	l.ready.push(&q.app.ready)
}

// pop returns the QP whose turn it is and removes it; nil if there is none.
func (l *schedule) pop() *QP { return l.ready.pop() }

// remove makes q unready.
func (l *schedule) remove(q *QP) { q.peer.ready.remove(q) }

// charge adds packets that q has sent, or might have sent, to the turns of its application and of its peer.
func (l *schedule) charge(q *QP, packets int) {
	q.app.ready.used += packets
	q.peer.lane.used += packets
}

// empty reports whether no QP is ready.
func (l *schedule) empty() bool { return l.ready.empty() }

// ring queues q, whose doorbell has rung.
func (l *schedule) ring(q *QP) {
	q.app.rung.push(q)
	l.rung.push(&q.app.ringing)
}

// answer returns the QP whose doorbell is to be taken next, and removes it; nil if there is none.
func (l *schedule) answer() *QP {
	q := l.rung.pop()
	if q != nil {
		q.app.ringing.used++
	}
	return q
}

// lane is the place of an application, or of a peer, among others that take turns.
type lane struct {
	of interface { // its QPs
		pop() *QP
		empty() bool
	}
	queued bool
	next   *lane
	used   int // of the share, in this turn
}

// lanes is a queue of those that have QPs. The first one is asked for QPs until it has used its
// share; then it goes to the end.
type lanes struct {
	share       int
	first, last *lane
}

// push adds m, unless it is in the queue.
func (l *lanes) push(m *lane) {
	if m.queued {
		return
	}
	m.queued = true
	if l.last == nil {
		l.first = m
	} else {
		l.last.next = m
	}
	l.last = m
}

// pop returns the QP whose turn it is and removes it; nil if there is none.
func (l *lanes) pop() *QP {
	for m := l.first; m != nil; m = l.first {
		if m.used < l.share {
			if q := m.of.pop(); q != nil {
				return q
			}
		}
		l.drop()
		if !m.of.empty() {
			l.push(m)
		}
	}
	return nil
}

// empty reports whether no lane is in the queue.
func (l *lanes) empty() bool { return l.first == nil }

// drop removes the first lane at the end of its turn.
func (l *lanes) drop() {
	m := l.first
	if l.first = m.next; l.first == nil {
		l.last = nil
	}
	m.next, m.queued, m.used = nil, false, 0
}

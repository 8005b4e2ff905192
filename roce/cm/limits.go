package cm

import (
	"github.com/goroce/goroce/ib"
)

// makeRoom enforces the limits before a request of src is accepted. It returns false if no ID can be freed for it.
func (m *Manager) makeRoom(src ib.GID) bool {
	if m.half.LenOf(src) >= m.opts.MaxHalfOpenSource {
		m.evictHalfOpen(m.half.OldestOf(src).Value)
	}
	if m.half.Len() >= m.opts.MaxHalfOpen { // a flood from few sources does not cost others their requests
		m.evictHalfOpen(m.half.Crowded().Value)
	}
	return m.roomForID()
}

// roomForID frees an ID for one more connection, from timewait if all are in use.
func (m *Manager) roomForID() bool {
	if len(m.conns) < m.opts.MaxConns {
		return true
	}
	return m.evictTimewait()
}

// evictHalfOpen ends a half-open connection in favour of a newer one. Either peer may be genuine, so the old one is
// sent a REJ: one message for each REQ does not amplify traffic.
func (m *Manager) evictHalfOpen(c *conn) {
	m.stats.HalfOpenDropped++
	m.reject(c, ib.RejectNoResources, nil, nil)
	if mayDataArrived.has(c.state) { // accepted: only the RTU is missing
		m.fail(c, Event{Kind: Unreachable, Waited: "REP", Sent: c.sent})
		return
	}
	m.fail(c, Event{Kind: Dropped})
}

// evictTimewait ends the timewait of the connection that has been in it longest.
func (m *Manager) evictTimewait() bool {
	oldest := m.waiting.Front()
	if oldest == nil {
		return false
	}
	m.stats.TimewaitDropped++
	m.fail(oldest.Value.(*conn), Event{Kind: TimewaitExit})
	return true
}

// hasRoom reports whether another input may be handled. An input adds a few messages and events at most, so this bounds
// both queues.
func (m *Manager) hasRoom() bool { return m.messages.len() < queueRoom && m.events.len() < queueRoom }

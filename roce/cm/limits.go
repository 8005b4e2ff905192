package cm

import (
	"container/list"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/wire"
)

// halfOpenList has the half-open connections, oldest first: all of them, and by source.
type halfOpenList struct {
	all      *list.List
	bySource map[ib.GID]*list.List
}

func newHalfOpenList() halfOpenList {
	return halfOpenList{all: list.New(), bySource: map[ib.GID]*list.List{}}
}

// toggle adds c, or removes it if it is in the list.
func (h *halfOpenList) toggle(c *conn) {
	src := c.path.Remote
	l := h.bySource[src]
	if c.inHalf == nil {
		if l == nil {
			l = list.New()
			h.bySource[src] = l
		}
		c.inHalf, c.inSource = h.all.PushBack(c), l.PushBack(c)
		return
	}
	h.all.Remove(c.inHalf)
	l.Remove(c.inSource)
	c.inHalf, c.inSource = nil, nil
	if l.Len() == 0 {
		delete(h.bySource, src)
	}
}

// makeRoom enforces the limits before a request of src is accepted. It returns false if no ID can be freed for it.
func (m *Manager) makeRoom(src ib.GID) bool {
	if l := m.half.bySource[src]; l != nil && l.Len() >= m.opts.MaxHalfOpenSource {
		m.evictHalfOpen(l.Front().Value.(*conn))
	}
	if m.half.all.Len() >= m.opts.MaxHalfOpen {
		m.evictHalfOpen(m.half.all.Front().Value.(*conn))
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
	m.reject(c, wire.RejectNoResources, nil, nil)
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

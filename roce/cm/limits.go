package cm

import (
	"container/list"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/wire"
)

// halfOpenList holds the connections that are half open, the oldest first, of all
// sources and of each.
type halfOpenList struct {
	all      *list.List
	bySource map[ib.GID]*list.List
}

func newHalfOpenList() halfOpenList {
	return halfOpenList{all: list.New(), bySource: map[ib.GID]*list.List{}}
}

// move takes c in, or out if it is in.
func (h *halfOpenList) move(c *conn) {
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

// makeRoom keeps the bounds before a request of src is taken; false means that
// there is no ID for it.
func (m *Manager) makeRoom(src ib.GID) bool {
	if l := m.half.bySource[src]; l != nil && l.Len() >= m.opts.MaxHalfOpenSource {
		m.evict(l.Front().Value.(*conn))
	}
	if m.half.all.Len() >= m.opts.MaxHalfOpen {
		m.evict(m.half.all.Front().Value.(*conn))
	}
	return m.roomForID()
}

// roomForID makes room for one more ID at the expense of one in timewait.
func (m *Manager) roomForID() bool {
	if len(m.conns) < m.opts.MaxConns {
		return true
	}
	return m.leaveEarly()
}

// evict drops what is half open for a newer one, which may be a live peer's. The
// old one's peer is told, for it may be one too: a message for each REQ is not
// more than what came in.
func (m *Manager) evict(c *conn) {
	m.stats.HalfOpenDropped++
	m.refuse(c, wire.RejectNoResources, nil, nil)
	if mayDataArrived.has(c.state) { // accepted: the RTU is missing
		m.fail(c, Event{Kind: Unreachable, Waited: "REP", Sent: c.sent})
		return
	}
	m.fail(c, Event{Kind: Dropped})
}

// leaveEarly ends the oldest timewait.
func (m *Manager) leaveEarly() bool {
	oldest := m.waiting.Front()
	if oldest == nil {
		return false
	}
	m.stats.TimewaitDropped++
	m.fail(oldest.Value.(*conn), Event{Kind: TimewaitExit})
	return true
}

// hasRoom says whether another input may be taken: it adds a few messages and
// events at most, and what has not been taken out is bounded so.
func (m *Manager) hasRoom() bool { return m.messages.len() < queueRoom && m.events.len() < queueRoom }

package cm

import (
	"slices"

	"github.com/goroce/goroce/wire"
)

// queue is a FIFO. It reuses the room of items that were taken out, so a queue that is never empty does not grow.
type queue[T any] struct {
	items []T
	head  int // items before it have been taken out
}

func (q *queue[T]) len() int { return len(q.items) - q.head }

func (q *queue[T]) put(item T) {
	if q.head > len(q.items)/2 {
		q.items = slices.Delete(q.items, 0, q.head)
		q.head = 0
	}
	q.items = append(q.items, item)
}

func (q *queue[T]) next(out *T) bool {
	if q.len() == 0 {
		return false
	}
	var zero T
	*out, q.items[q.head] = q.items[q.head], zero
	q.head++
	return true
}

// NextMessage takes out the oldest message to send. It returns false if there is none.
func (m *Manager) NextMessage(out *Message) bool { return m.messages.next(out) }

// Pending reports whether NextMessage has a message.
func (m *Manager) Pending() bool { return m.messages.len() > 0 }

// NextEvent takes out the oldest event. It returns false if there is none.
func (m *Manager) NextEvent(out *Event) bool { return m.events.next(out) }

// raise queues an event of c, unless the consumer has released c.
func (m *Manager) raise(c *conn, e Event) {
	if c.released {
		return
	}
	e.ID = c.id
	m.events.put(e)
}

// body is a message's content after the MAD header.
type body interface{ Put(*[wire.MADLen]byte) }

// compose builds a message of c that may have to be sent again.
func (c *conn) compose(attr wire.CMAttr, tid uint64, b body) {
	format(&c.last, attr, tid, b)
	c.lastAttr, c.sent = attr, 0
}

// transmit sends the last composed message of c.
func (m *Manager) transmit(c *conn) {
	m.post(c.path, c.lastAttr, &c.last)
}

// send sends a message of c that is never repeated.
func (m *Manager) send(c *conn, attr wire.CMAttr, tid uint64, b body) {
	var mad [wire.MADLen]byte
	format(&mad, attr, tid, b)
	m.post(c.path, attr, &mad)
}

// reply answers a message on the path by which it came, without a connection.
func (m *Manager) reply(in *input, attr wire.CMAttr, b body) {
	var mad [wire.MADLen]byte
	format(&mad, attr, in.hdr.TID, b)
	p := in.path
	p.HopLimit = 0 // the hop limit that is left in the received datagram may not suffice for the way back
	m.post(p, attr, &mad)
}

func (m *Manager) post(p Path, attr wire.CMAttr, mad *[wire.MADLen]byte) {
	m.stats.Sent[attr-wire.AttrREQ]++
	m.messages.put(Message{Path: p, MAD: *mad})
}

func format(mad *[wire.MADLen]byte, attr wire.CMAttr, tid uint64, b body) {
	h := wire.MADHeader{BaseVersion: wire.MADBaseVersion, Class: wire.MADClassCM, ClassVersion: wire.MADClassVersionCM,
		Method: wire.MADMethodSend, TID: tid, Attr: attr}
	h.Put(mad)
	b.Put(mad)
}

package cma

import (
	"container/list"
	"context"
	"fmt"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/ib/driver"
)

// Channel is an event channel of the connection manager, with its IDs. It implements ib.CM.
//
// Its queue is bounded by the number of its IDs: an ID has at most one unread event of a type and, for memberships, of
// a group.
type Channel struct {
	driver.Implementation

	port   *Port   // by which it was opened
	ports  []*Port // over which its IDs are
	owner  *Owner
	tenant any           // whose QPs the IDs may name
	ready  chan struct{} // has an item if there may be an event
	onPut  func()        // set by OnEvent; nil for none
	told   bool          // onPut was called, and Waiting has not returned quiet since; guarded by Port.mu
	done   chan struct{} // closed with the channel

	// Guarded by Port.mu.
	at     *list.Element // in hub.channels; nil after Close
	ids    *list.List    // of *ID
	events *list.List    // of *unreadEvent, the oldest first
	closed bool          // by Close, or with the device
	gone   bool          // by Close: nobody gets its events
}

var _ ib.CM = (*Channel)(nil)

// unreadEvent is an event that NextEvent has not returned yet.
type unreadEvent struct {
	id *ID
	ev ib.CMEvent
}

// put queues an event of an ID. It replaces an unread event of the same type and group, for example of an earlier
// ResolveAddr that has failed alike: so an ID that repeats a call without reading events takes no more memory.
func (ch *Channel) put(id *ID, ev ib.CMEvent) {
	if id.muted && ev.Type != ib.CMConnectRequest {
		return
	}
	ch.drop(id, func(old *ib.CMEvent) bool { return old.Type == ev.Type && old.Group == ev.Group })
	ev.ID = id
	id.unread = append(id.unread, ch.events.PushBack(&unreadEvent{id, ev}))
	ch.queued()
}

// queued wakes a goroutine in NextEvent, and calls onPut, after an event was put into the queue.
func (ch *Channel) queued() {
	ch.wake()
	if ch.onPut != nil && !ch.told {
		ch.told = true
		ch.onPut()
	}
}

// OnEvent makes a tenant's channel call f when an event is queued. It does not call f again until Waiting has returned
// quiet. f is called with locks held, so it must neither block nor call the device. OnEvent is called before the
// channel is used.
func (ch *Channel) OnEvent(f func()) { ch.onPut = f }

// Waiting returns the number n of queued events. quiet reports that f of OnEvent was called and that the queue is
// empty: from then on f is called again for the next event. n and quiet are read together, under the lock.
func (ch *Channel) Waiting() (n int, quiet bool) {
	ch.port.mu.Lock()
	defer ch.port.mu.Unlock()
	n = ch.events.Len()
	quiet = ch.told && n == 0
	if quiet {
		ch.told = false
	}
	return n, quiet
}

// Poll takes the oldest event, if there is one.
func (ch *Channel) Poll() (ev ib.CMEvent, ok bool, err error) {
	ch.port.mu.Lock()
	defer ch.port.mu.Unlock()
	ev, ok = ch.take()
	if !ok && ch.closed {
		err = ch.closedError()
	}
	return ev, ok, err
}

func (ch *Channel) closedError() error {
	return fmt.Errorf("event channel of %s: %w", ch.port.opts.Name, ib.ErrClosed)
}

// wake wakes one goroutine in NextEvent.
func (ch *Channel) wake() {
	select {
	case ch.ready <- struct{}{}:
	default:
	}
}

// drop removes those unread events of an ID for which which returns true.
func (ch *Channel) drop(id *ID, which func(*ib.CMEvent) bool) {
	kept := id.unread[:0]
	for _, e := range id.unread {
		if which(&e.Value.(*unreadEvent).ev) {
			ch.events.Remove(e)
		} else {
			kept = append(kept, e)
		}
	}
	id.unread = kept
}

// take removes the oldest event and returns it.
func (ch *Channel) take() (ev ib.CMEvent, ok bool) {
	e := ch.events.Front()
	if e == nil || ch.gone {
		return ev, false
	}
	ch.events.Remove(e)
	u := e.Value.(*unreadEvent)
	u.id.unread = u.id.unread[1:] // an ID's events are in order
	if u.ev.Type == ib.CMConnectRequest {
		u.id.wasRead()
	}
	if ch.events.Len() > 0 {
		ch.wake() // another goroutine in NextEvent
	}
	return u.ev, true
}

// NextEvent waits for an event.
func (ch *Channel) NextEvent(ctx context.Context) (ib.CMEvent, error) {
	for {
		ch.port.mu.Lock()
		ev, ok := ch.take()
		closed := ch.closed
		ch.port.mu.Unlock()
		if ok {
			return ev, nil
		}
		if closed {
			return ib.CMEvent{}, ch.closedError()
		}
		select {
		case <-ch.ready:
		case <-ch.done:
		case <-ctx.Done():
			return ib.CMEvent{}, ctx.Err()
		}
	}
}

// CreateID makes an ID.
func (ch *Channel) CreateID(init ib.CMIDInit) (ib.CMID, error) {
	const op = "create CM ID"
	if err := complete(op, &init); err != nil {
		return nil, err
	}
	p := ch.port
	if err := p.lock(op); err != nil {
		return nil, err
	}
	defer p.mu.Unlock()
	if ch.closed {
		return nil, fmt.Errorf("%s: event channel: %w", op, ib.ErrClosed)
	}
	id, err := ch.newID(op, init, p)
	if err != nil {
		return nil, err
	}
	return id, nil
}

// newID makes an ID at a port, if its owner may have one more.
func (ch *Channel) newID(op string, init ib.CMIDInit, p *Port) (*ID, error) {
	if err := ch.owner.takeID(op, ch.heap()); err != nil {
		return nil, err
	}
	id := &ID{home: ch.port, several: len(ch.ports) > 1, port: p, ch: ch, init: init, ackTimeout: defaultAckTimeout,
		swept: p.mu.here().sweep}
	id.inChannel = ch.ids.PushBack(id)
	return id, nil
}

// end makes all calls of NextEvent return, now and later.
func (ch *Channel) end() {
	if !ch.closed {
		ch.closed = true
		close(ch.done)
	}
}

// Close closes the channel and its IDs, and sends the resulting messages to peers at once.
func (ch *Channel) Close() error {
	p := ch.port
	p.mu.Lock()
	ch.end()
	ch.gone = true
	for e := ch.ids.Front(); e != nil; e = ch.ids.Front() {
		e.Value.(*ID).close()
		p.breathe()
	}
	h := p.mu.here()
	var open []*Port
	if ch.at != nil {
		h.channels.Remove(ch.at)
		ch.at, open = nil, h.open()
	}
	h.settle()
	p.mu.Unlock()
	flush(open)
	return nil
}

//go:build rnic && cgo

package rnic

// #include "cmshim.h"
import "C"

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"syscall"

	"github.com/goroce/goroce/ib"
)

// cmChannel is an event channel. A goroutine of its own moves the kernel's events to it,
// whether somebody waits for them or not: the answer to a peer's DREQ depends on it.
type cmChannel struct {
	port   *cmPort
	c      *C.struct_rdma_event_channel // for calls of other goroutines: while not closed
	waiter *waiter
	ready  chan struct{} // has an item if there may be an event
	done   chan struct{} // closed with the channel
	read   chan struct{} // closed when the reader has ended
	once   sync.Once

	// Guarded by cmPort.mu.
	ids    map[*cmID]struct{}
	unread []ib.CMEvent // the oldest first
	closed bool
	err    error // why it ended, if nobody closed it
}

var _ ib.CM = (*cmChannel)(nil)

// newCMChannel takes c over if it succeeds.
func newCMChannel(p *cmPort, c *C.struct_rdma_event_channel) (*cmChannel, error) {
	w, err := newWaiter(int(c.fd), "connection manager of "+p.dev.name)
	if err != nil {
		return nil, err
	}
	ch := &cmChannel{port: p, c: c, waiter: w, ready: make(chan struct{}, 1), done: make(chan struct{}),
		read: make(chan struct{}), ids: map[*cmID]struct{}{}}
	go func() {
		defer close(ch.read)
		if err := w.wait(context.Background(), ch.take); err != nil {
			p.mu.Lock()
			ch.end(err)
			p.mu.Unlock()
		}
	}()
	return ch, nil
}

// take moves all events that the kernel has. It returns true when there will be none.
func (ch *cmChannel) take() (bool, error) {
	ch.port.mu.Lock()
	defer ch.port.mu.Unlock()
	return ch.closed, ch.drain()
}

// drain is take for who holds cmPort.mu.
func (ch *cmChannel) drain() error {
	for !ch.closed {
		var ev C.struct_rnic_cm_event
		switch errno := syscall.Errno(C.rnic_cm_next(ch.c, &ev)); errno {
		case 0:
			ch.port.handle(&ev)
		case syscall.EAGAIN, syscall.EINTR:
			return nil
		default:
			return verbError("read events of the connection manager", errno)
		}
	}
	return nil
}

// put adds an event of an ID of the channel's.
func (ch *cmChannel) put(id *cmID, ev ib.CMEvent) {
	ev.ID = id
	ch.unread = append(ch.unread, ev)
	ch.wake()
}

func (ch *cmChannel) wake() {
	select {
	case ch.ready <- struct{}{}:
	default:
	}
}

// drop takes unread events away.
func (ch *cmChannel) drop(which func(*ib.CMEvent) bool) {
	ch.unread = slices.DeleteFunc(ch.unread, func(ev ib.CMEvent) bool { return which(&ev) })
}

// next takes the oldest event.
func (ch *cmChannel) next() (ev ib.CMEvent, ok bool) {
	if len(ch.unread) == 0 {
		return ev, false
	}
	ev = ch.unread[0]
	ch.unread = slices.Delete(ch.unread, 0, 1)
	if ev.Type == ib.CMConnectRequest {
		ev.ID.(*cmID).wasRead()
	}
	if len(ch.unread) > 0 {
		ch.wake() // another one who waits
	}
	return ev, true
}

// NextEvent waits for an event.
func (ch *cmChannel) NextEvent(ctx context.Context) (ib.CMEvent, error) {
	for {
		ch.port.mu.Lock()
		ev, ok := ch.next()
		closed, err := ch.closed, ch.err
		ch.port.mu.Unlock()
		if ok {
			return ev, nil
		}
		if closed {
			return ev, fmt.Errorf("event channel of %s: %w", ch.port.dev.name, cmp.Or(err, ib.ErrClosed))
		}
		select {
		case <-ch.ready:
		case <-ch.done:
		case <-ctx.Done():
			return ev, ctx.Err()
		}
	}
}

// CreateID makes an ID.
func (ch *cmChannel) CreateID(init ib.CMIDInit) (ib.CMID, error) {
	const op = "create CM ID"
	if err := completeCMID(op, &init); err != nil {
		return nil, err
	}
	p := ch.port
	if err := ch.lock(op); err != nil {
		return nil, err
	}
	defer p.mu.Unlock()
	var c *C.struct_rdma_cm_id
	if ret, err := C.rdma_create_id(ch.c, &c, nil, uint32(init.Space)); ret != 0 {
		return nil, cmResult(op, ret, err)
	}
	return ch.adopt(c, init), nil
}

// lock begins a call on the channel; the caller unlocks cmPort.mu, unless there is an error.
func (ch *cmChannel) lock(op string) error {
	if err := ch.port.lock(op); err != nil {
		return err
	}
	if ch.closed {
		ch.port.mu.Unlock()
		return fmt.Errorf("%s: event channel: %w", op, ib.ErrClosed)
	}
	return nil
}

// adopt makes an ID of what librdmacm has made.
func (ch *cmChannel) adopt(c *C.struct_rdma_cm_id, init ib.CMIDInit) *cmID {
	id := &cmID{port: ch.port, c: c, ch: ch, init: init, ackTimeout: -1}
	ch.port.ids[c] = id
	ch.ids[id] = struct{}{}
	return id
}

// end lets all who wait go, once they have read what is there.
func (ch *cmChannel) end(err error) {
	if !ch.closed {
		ch.closed, ch.err = true, err
		close(ch.done)
	}
}

// stop ends the reader and what librdmacm has. The channel is closed, its IDs are gone, and
// cmPort.mu is not held.
func (ch *cmChannel) stop() {
	ch.once.Do(func() {
		ch.waiter.close()
		<-ch.read
		C.rdma_destroy_event_channel(ch.c)
	})
}

// Close closes the channel and all of its IDs.
func (ch *cmChannel) Close() error {
	p := ch.port
	p.mu.Lock()
	for id := range ch.ids {
		id.close()
	}
	ch.unread = nil
	ch.end(nil)
	delete(p.channels, ch)
	p.mu.Unlock()
	ch.stop()
	return nil
}

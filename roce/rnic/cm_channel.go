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
	"github.com/goroce/goroce/ib/driver"
)

// cmChannel is an event channel. Its goroutine, the reader, reads the kernel's events whether or
// not the application waits for them, since a peer's DREQ is answered when its event is read.
//
// Its C form lives until stop. The order at the end is the same for CM.Close and for the device. With cmPort.mu held,
// IDs are destroyed and closed is set. Then, without it, the reader ends, and at last the descriptor is closed.
type cmChannel struct {
	driver.Implementation

	port   *cmPort
	c      *C.struct_rdma_event_channel // other goroutines use it only while closed is false
	waiter *waiter
	ready  chan struct{} // has an item if there may be an event; one goroutine takes it, and wakes the next
	done   chan struct{} // closed with the channel, also if the reader fails
	read   chan struct{} // closed when the reader has ended
	once   sync.Once     // of stop

	// Guarded by cmPort.mu.
	ids    map[*cmID]struct{} // not closed yet; IDs of unread requests are among them
	unread []ib.CMEvent       // oldest first
	closed bool
	err    error // why the reader ended, if the channel was not closed
}

var _ ib.CM = (*cmChannel)(nil)

// newCMChannel returns a channel on c. If it succeeds it takes ownership of c. The reader may begin before the caller
// has unlocked cmPort.mu: it waits for that.
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

// take reads all events that the kernel has. It returns true if the channel is closed. The waiter calls it on the
// reader's goroutine.
func (ch *cmChannel) take() (bool, error) {
	ch.port.mu.Lock()
	defer ch.port.mu.Unlock()
	return ch.closed, ch.drain()
}

// drain is the part of take under cmPort.mu. moveTo calls it too, on a goroutine of the application. It does not block,
// since newWaiter has made the descriptor non-blocking: the kernel then returns EAGAIN.
func (ch *cmChannel) drain() error {
	// All that there are: the waiter is told when the descriptor becomes readable, not of each event.
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

// put queues an event of an ID of the channel. The caller holds cmPort.mu, as for drop, dropLast and next.
func (ch *cmChannel) put(id *cmID, ev ib.CMEvent) {
	ev.ID = id
	ch.unread = append(ch.unread, ev)
	ch.wake()
}

// wake makes one call of NextEvent look for an event. If nobody waits the item stays, and the next call looks in vain
// at worst.
func (ch *cmChannel) wake() {
	select {
	case ch.ready <- struct{}{}:
	default:
	}
}

// drop removes the unread events that match.
func (ch *cmChannel) drop(match func(*ib.CMEvent) bool) {
	ch.unread = slices.DeleteFunc(ch.unread, func(ev ib.CMEvent) bool { return match(&ev) })
}

// dropLast removes the last unread event that matches, if there is one.
func (ch *cmChannel) dropLast(match func(*ib.CMEvent) bool) {
	for i := range slices.Backward(ch.unread) {
		if match(&ch.unread[i]) {
			ch.unread = slices.Delete(ch.unread, i, i+1)
			return
		}
	}
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
		ch.wake() // another waiting NextEvent
	}
	return ev, true
}

// NextEvent waits for an event. It reads the Go queue only, so any number of goroutines may wait.
func (ch *cmChannel) NextEvent(ctx context.Context) (ib.CMEvent, error) {
	for {
		ch.port.mu.Lock()
		ev, ok := ch.next()
		closed, err := ch.closed, ch.err
		ch.port.mu.Unlock()
		if ok {
			return ev, nil
		}
		// Events that were queued before the end come first.
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

// CreateID creates an ID.
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

// lock locks cmPort.mu for a call on the channel. The caller unlocks it, unless lock returns an
// error.
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

// adopt returns a cmID for an ID that librdmacm has created, and which it takes ownership of: cmID.release destroys it.
// The caller holds cmPort.mu.
func (ch *cmChannel) adopt(c *C.struct_rdma_cm_id, init ib.CMIDInit) *cmID {
	id := &cmID{port: ch.port, c: c, ch: ch, init: init, ackTimeout: -1}
	ch.port.ids[c] = id
	ch.ids[id] = struct{}{}
	return id
}

// end ends the channel: calls of NextEvent fail once they have returned the unread events. The caller holds cmPort.mu.
// The first cause counts, so the error of a reader that stop has ended is dropped.
func (ch *cmChannel) end(err error) {
	if !ch.closed {
		ch.closed, ch.err = true, err
		close(ch.done)
	}
}

// stop ends the reader and destroys librdmacm's channel. The channel must be closed and its IDs
// destroyed; the caller must not hold cmPort.mu.
func (ch *cmChannel) stop() {
	ch.once.Do(func() {
		// Without mu, which a take that is under way holds.
		ch.waiter.close()
		// When the waiter is closed the reader still locks mu once, to report an error.
		<-ch.read
		C.rdma_destroy_event_channel(ch.c)
	})
}

// Close closes the channel and all of its IDs. Unread events are dropped with them. Each call returns when the channel
// has ended, also if another goroutine is closing it. It does not need the device to be open.
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

//go:build rnic && cgo

package rnic

// #include "shim.h"
import "C"

import (
	"context"
	"fmt"
	"syscall"
	"unsafe"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/ib/driver"
)

// channel delivers the events of CQs. It is either one of the application, whose goroutines call Wait, or that of
// device.waking, which a goroutine of this package reads (wake).
type channel struct {
	driver.Implementation

	object
	c *C.struct_ibv_comp_channel
	*waiter
	ended chan struct{} // closed when wake has returned; of a channel of the application never
}

// CreateChannel makes a completion channel.
func (d *device) CreateChannel() (ib.Channel, error) {
	if err := d.lock(createChannel); err != nil {
		return nil, err
	}
	defer d.mu.Unlock()
	ch, err := d.newChannel()
	if err != nil {
		return nil, err
	}
	return ch, nil
}

const createChannel = "create channel"

// newChannel makes a channel, which object.Close or device.Close ends. The caller holds the device's mutex.
func (d *device) newChannel() (*channel, error) {
	c, err := C.ibv_create_comp_channel(d.ctx)
	if c == nil {
		return nil, verbError(createChannel, err)
	}
	w, err := newWaiter(int(c.fd), "completion channel of "+d.name)
	if err != nil {
		C.ibv_destroy_comp_channel(c)
		return nil, fmt.Errorf("%s: %w", createChannel, err)
	}
	ch := &channel{c: c, waiter: w, ended: make(chan struct{})}
	d.adopt(&ch.object, kindChannel, ch.free)
	return ch, nil
}

// wakeups returns the channel for the events of CQs that have none of their own. It is made with the first such CQ, and
// closed with the device. The caller holds the device's mutex.
func (d *device) wakeups() (*channel, error) {
	if d.waking != nil {
		return d.waking, nil
	}
	ch, err := d.newChannel()
	if err != nil {
		return nil, err
	}
	d.waking = ch
	go ch.wake()
	return ch, nil
}

// wake wakes the goroutines that wait for a CQ with an event, until the channel is closed. It also ends if reading
// fails, as when the device was removed: calls of cq.Wait see that by ended.
//
// c.waiter is not nil: only CQs without a channel of the application have their events here.
func (ch *channel) wake() {
	defer close(ch.ended)
	for {
		c, err := ch.next(context.Background())
		if err != nil {
			return
		}
		c.waiter.Wake()
	}
}

// Wait returns a CQ with an event. It drops events of CQs that were closed since.
func (ch *channel) Wait(ctx context.Context) (ib.CQ, error) {
	found, err := ch.next(ctx)
	if err != nil {
		return nil, err
	}
	return found, nil
}

// next takes the event of a CQ from the library. It does not take the device's mutex, which a goroutine that destroys
// the CQ holds while it waits for the event's ack.
func (ch *channel) next(ctx context.Context) (*cq, error) {
	var found *cq
	err := ch.wait(ctx, func() (bool, error) {
		for found == nil {
			var c *C.struct_ibv_cq
			switch errno := syscall.Errno(C.rnic_get_cq_event(ch.c, &c)); errno {
			case 0:
			case syscall.EAGAIN, syscall.EINTR:
				return false, nil
			default:
				return false, verbError("wait on channel", errno)
			}
			found, _ = ch.dev.names.find(uintptr(unsafe.Pointer(c))).(*cq)
			// Destroying a CQ waits for this ack, so until then its address is not reused.
			C.ibv_ack_cq_events(c, 1)
		}
		return true, nil
	})
	if err != nil {
		return nil, err
	}
	return found, nil
}

// free destroys the channel. No CQ uses it any more, so there are no events to acknowledge.
func (ch *channel) free() error {
	// First: a goroutine that waits could read from the descriptor after the library has closed it.
	ch.waiter.close()
	return check("close channel", C.ibv_destroy_comp_channel(ch.c))
}

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
)

// channel delivers the events of CQs.
type channel struct {
	object
	c *C.struct_ibv_comp_channel
	*waiter
}

// CreateChannel makes a completion channel.
func (d *device) CreateChannel() (ib.Channel, error) {
	const op = "create channel"
	if err := d.lock(op); err != nil {
		return nil, err
	}
	defer d.mu.Unlock()
	c, err := C.ibv_create_comp_channel(d.ctx)
	if c == nil {
		return nil, verbError(op, err)
	}
	w, err := newWaiter(int(c.fd), "completion channel of "+d.name)
	if err != nil {
		C.ibv_destroy_comp_channel(c)
		return nil, fmt.Errorf("%s: %w", op, err)
	}
	ch := &channel{c: c, waiter: w}
	d.adopt(&ch.object, kindChannel, ch.free)
	return ch, nil
}

// Wait returns a CQ with an event. It drops events of CQs that were closed since.
func (ch *channel) Wait(ctx context.Context) (ib.CQ, error) {
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

func (ch *channel) free() error {
	ch.waiter.close()
	return check("close channel", C.ibv_destroy_comp_channel(ch.c))
}

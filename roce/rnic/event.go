//go:build rnic && cgo

package rnic

// #include "shim.h"
import "C"

import (
	"context"
	"syscall"

	"github.com/goroce/goroce/ib"
)

// NextEvent waits for an asynchronous event. An event that package ib does not define has the
// number of libibverbs as its type.
//
// Nobody reads events unless the application calls NextEvent. The kernel keeps them, and drops those of an object that
// is destroyed.
func (d *device) NextEvent(ctx context.Context) (ib.Event, error) {
	var event ib.Event
	err := d.events.wait(ctx, func() (bool, error) {
		// Zeroed: of the union that becomes element, the library sets only the first 4 bytes for a port number.
		var c C.struct_ibv_async_event
		var typ C.int
		var element C.uintptr_t
		switch errno := syscall.Errno(C.rnic_get_async_event(d.ctx, &c, &typ, &element)); errno {
		case 0:
		case syscall.EAGAIN, syscall.EINTR:
			return false, nil
		default:
			return false, verbError("wait for event", errno)
		}
		event = ib.Event{Type: ib.EventType(typ)}
		// For an event of the device element is a port number, which find does not know.
		switch o := d.names.find(uintptr(element)).(type) {
		case *queuePair:
			event.QP = o
		case *cq:
			event.CQ = o
		case *srq:
			event.SRQ = o
		}
		// Destroying the object waits for this ack, so until then its address is not reused.
		C.ibv_ack_async_event(&c)
		return true, nil
	})
	return event, err
}

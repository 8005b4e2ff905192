//go:build rnic && cgo

package rnic

// #include "shim.h"
import "C"

import (
	"errors"
	"fmt"
	"sync"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/ib/driver"
)

// This file is the device: its locks, and the order in which everything ends.
//
// Locks are taken in this order: cmPort.mu, device.mu, the mutex of a CQ or of a work queue (send before receive),
// refs. Under mr.mu and the mutex of names no other lock is taken. Posting and polling do not take device.mu, which is
// held for as long as the kernel takes to create or destroy an object.
//
// The C library calls nothing back: events come by file descriptors only. But its destroying verbs block until events
// that were read are acknowledged. So whoever reads an event acknowledges it without taking a lock that a destroying
// verb holds: NextEvent and channel.next take that of names only.

// device is an open RDMA device. The fields above mu do not change after newDevice, or have locks of their own.
type device struct {
	driver.Implementation

	name    string
	attr    ib.DeviceAttr
	sendOps C.uint64_t // IBV_QP_EX_WITH flags with which RC QPs are created
	clock   clock
	events  *waiter // on ctx.async_fd, for NextEvent
	refs    refs    // objects that requests identify by number
	names   names   // objects that events identify by address
	cm      *cmPort

	mu      sync.Mutex // serializes verbs that create, modify and destroy objects
	ctx     *C.struct_ibv_context
	closed  bool
	objects [numKinds]map[*object]struct{} // all that are open, for Close
	qps     map[ib.QPN]*queuePair          // by number, for the connection manager (cmID.checkQP)
	waking  *channel                       // see wakeups
}

var _ ib.Device = (*device)(nil)

// newDevice returns the device of ctx, and takes ownership of ctx: it closes ctx if it fails.
func newDevice(name string, ctx *C.struct_ibv_context) (_ *device, err error) {
	d := &device{name: name, ctx: ctx, qps: map[ib.QPN]*queuePair{}}
	d.cm = newCMPort(d)
	for k := range d.objects {
		d.objects[k] = map[*object]struct{}{}
	}
	if err = d.describe(); err == nil {
		// After describe, since both add capabilities to those that it sets. The waiter comes last, so that closing
		// ctx is all there is to undo.
		d.probe()
		d.probeCM()
		d.events, err = newWaiter(int(ctx.async_fd), "asynchronous events of "+name)
	}
	if err != nil {
		C.ibv_close_device(ctx)
		return nil, err
	}
	return d, nil
}

// lock locks the device's mutex for a verb on the device. The caller unlocks it, unless lock
// returns an error. Verbs on an object use the object's own lock.
func (d *device) lock(op string) error {
	d.mu.Lock()
	if d.closed {
		d.mu.Unlock()
		return fmt.Errorf("%s: device %s is %w", op, d.name, ib.ErrClosed)
	}
	return nil
}

// Close closes the device and all its objects. It ends the waits of all goroutines, and waits for verbs that are under
// way.
//
// If the library refuses to destroy an object, Close returns the error and leaves the context open, which the object
// refers to. Calling Close again has no effect then.
func (d *device) Close() error {
	// Before the mutex is locked. The connection manager's readers take it, and close waits for them.
	d.cm.close()
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil
	}
	d.closed = true
	// NextEvent reads from the context, so no call of it may be left when that is closed.
	d.events.close()
	var errs []error
	for kind := range d.objects {
		for o := range d.objects[kind] {
			errs = append(errs, o.destroy())
			// After an error too. The program cannot use the object any more, and must not destroy it again.
			o.end()
		}
	}
	if err := errors.Join(errs...); err != nil {
		return err // objects that could not be destroyed still need the context
	}
	return check("close device "+d.name, C.ibv_close_device(d.ctx))
}

// names finds the objects that events identify by their addresses. The library gives the kernel the address of its
// struct when it creates an object, and each event brings it back.
//
// Objects are added and removed with the device's mutex held, in the same hold as the verb that creates or destroys
// them. So an address that malloc gives out again is removed before it is added. The mutex here is for events, which
// are read without that of the device.
type names struct {
	mu sync.RWMutex
	of map[uintptr]any
}

func (n *names) add(address uintptr, o any) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.of == nil {
		n.of = map[uintptr]any{}
	}
	n.of[address] = o
}

func (n *names) remove(address uintptr) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.of, address)
}

func (n *names) find(address uintptr) any {
	n.mu.RLock()
	defer n.mu.RUnlock()
	return n.of[address]
}

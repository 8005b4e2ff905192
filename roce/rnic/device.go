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

// device is an open RDMA device.
type device struct {
	driver.Implementation

	name    string
	attr    ib.DeviceAttr
	sendOps C.uint64_t // IBV_QP_EX_WITH flags with which RC QPs are created
	clock   clock
	events  *waiter
	refs    refs  // objects that requests identify by number
	names   names // objects that events identify by address
	cm      *cmPort

	mu      sync.Mutex // serializes verbs that create, modify and destroy objects
	ctx     *C.struct_ibv_context
	closed  bool
	objects [numKinds]map[*object]struct{}
	qps     map[ib.QPN]*queuePair
	waking  *channel // see wakeups
}

var _ ib.Device = (*device)(nil)

// newDevice returns the device of ctx, and takes ownership of ctx.
func newDevice(name string, ctx *C.struct_ibv_context) (_ *device, err error) {
	d := &device{name: name, ctx: ctx, qps: map[ib.QPN]*queuePair{}}
	d.cm = newCMPort(d)
	for k := range d.objects {
		d.objects[k] = map[*object]struct{}{}
	}
	if err = d.describe(); err == nil {
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
// returns an error.
func (d *device) lock(op string) error {
	d.mu.Lock()
	if d.closed {
		d.mu.Unlock()
		return fmt.Errorf("%s: device %s is %w", op, d.name, ib.ErrClosed)
	}
	return nil
}

// Close closes the device and all its objects.
func (d *device) Close() error {
	d.cm.close()
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil
	}
	d.closed = true
	d.events.close()
	var errs []error
	for kind := range d.objects {
		for o := range d.objects[kind] {
			errs = append(errs, o.destroy())
			o.end()
		}
	}
	if err := errors.Join(errs...); err != nil {
		return err // objects that could not be destroyed still need the context
	}
	return check("close device "+d.name, C.ibv_close_device(d.ctx))
}

// names finds the objects that events identify by their addresses.
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

package client

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/ib/driver"
	"github.com/goroce/goroce/roce/daemon/abi"
)

// object is the part that all objects of a device have in common.
type object struct {
	driver.Implementation

	dev    *Device
	kind   abi.Kind
	handle abi.Handle
	dead   atomic.Bool
	ending sync.Mutex // held by Close
}

// err returns an error if the object, or its device, can no longer be used.
func (o *object) err(op string) error {
	if o.dead.Load() {
		return fmt.Errorf("%s: %w", op, ib.ErrClosed)
	}
	return o.dev.err(op)
}

// Close destroys the object. It does nothing if the device is closed or the daemon has ended.
func (o *object) Close() error {
	o.ending.Lock()
	defer o.ending.Unlock()
	if o.dead.Load() || o.dev.err("") != nil {
		return nil
	}
	if err := tell(o.dev.link, abi.OpClose, abi.Close{Handle: o.handle, Kind: o.kind}); err != nil {
		return err
	}
	o.dead.Store(true)
	o.dev.forget(o)
	return nil
}

func (o *object) self() *object { return o }

// owned checks an argument of a verb and returns it as a T: it must be an open object of this
// device.
func owned[T interface {
	comparable
	self() *object
}](d *Device, op, attr string, arg any) (T, error) {
	var none T
	fail := func(allowed string, err error) (T, error) {
		return none, driver.Refuse(op, attr, fmt.Sprintf("%T", arg), allowed, err)
	}
	o, ok := arg.(T)
	switch {
	case arg == nil || ok && o == none:
		return fail("an object of this device; none was given", ib.ErrInvalid)
	case !ok || o.self().dev != d:
		return fail("an object of this device", ib.ErrForeign)
	case o.self().dead.Load():
		return fail("an object that is open", ib.ErrClosed)
	}
	return o, nil
}

// made sends a request that creates an object without rings, and returns its handle.
func made[Request any](d *Device, op abi.Op, r Request) (abi.Handle, error) {
	if err := d.err(op.String()); err != nil {
		return 0, err
	}
	reply, _, err := ask[abi.Object](d.link, op, r, 0)
	return reply.Handle, err
}

// xrcd is an XRC domain.
type xrcd struct{ object }

// AllocXRCD allocates an XRC domain.
func (d *Device) AllocXRCD() (ib.XRCD, error) {
	h, err := made(d, abi.OpAllocXRCD, abi.AllocXRCD{})
	if err != nil {
		return nil, err
	}
	return &xrcd{object{dev: d, kind: abi.KindXRCD, handle: h}}, nil
}

// ah is an address handle.
type ah struct {
	object
	num ib.AHNum

	mu   sync.Mutex
	attr ib.AHAttr
}

// CreateAH creates an address handle.
func (p *pd) CreateAH(attr ib.AHAttr) (ib.AH, error) {
	const op = "create AH"
	if err := p.err(op); err != nil {
		return nil, err
	}
	r, _, err := ask[abi.RegReply](p.dev.link, abi.OpCreateAH, abi.CreateAH{PD: p.handle, AH: abi.AHOf(&attr)}, 0)
	if err != nil {
		return nil, err
	}
	return &ah{object: object{dev: p.dev, kind: abi.KindAH, handle: r.Handle}, num: ib.AHNum(r.Key), attr: attr}, nil
}

// Num returns the number of the handle in send requests.
func (a *ah) Num() ib.AHNum { return a.num }

// Query returns the address vector.
func (a *ah) Query() (ib.AHAttr, error) {
	if err := a.err("query AH"); err != nil {
		return ib.AHAttr{}, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.attr, nil
}

// Modify changes the destination of later send requests.
func (a *ah) Modify(attr ib.AHAttr) error {
	if err := a.err("modify AH"); err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := tell(a.dev.link, abi.OpModifyAH, abi.ModifyAH{Handle: a.handle, AH: abi.AHOf(&attr)}); err != nil {
		return err
	}
	a.attr = attr
	return nil
}

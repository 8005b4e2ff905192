//go:build rnic && cgo

package rnic

import (
	"fmt"
	"strings"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/ib/driver"
)

// kind is a kind of verbs object. Closing the device destroys objects in this order: users before
// what they use. Windows come before QPs, since rdma_rxe keeps a QP to which windows of type 2
// are bound.
type kind int

const (
	kindMW kind = iota
	kindQP
	kindAH
	kindSRQ
	kindMR
	kindCQ
	kindChannel
	kindXRCD
	kindPD
	numKinds
)

var kindText = [numKinds]string{"memory window", "QP", "address handle", "SRQ", "memory region", "CQ", "channel",
	"XRC domain", "protection domain"}

// object tracks the lifetime of a verbs object. Its fields are guarded by the device's mutex, but dev and kind do not
// change.
//
// The kernel counts the uses as well, but says only EBUSY. Counting them here makes the error say what the users are.
type object struct {
	dev     *device
	kind    kind
	uses    []*object     // objects that must outlive it; of a region the first is its PD (mr.settle replaces it)
	users   [numKinds]int // how many objects of each kind use it
	destroy func() error  // destroys it in the library; if it fails, Close may be called again
	closed  bool
}

// base is promoted to all types that embed an object, so that find can be generic.
func (o *object) base() *object { return o }

// lock locks the device's mutex for a verb on o. The caller unlocks it, unless lock returns an
// error since o is closed. It need not look at device.closed: closing the device closes all objects.
func (o *object) lock(op string) error {
	o.dev.mu.Lock()
	if o.closed {
		o.dev.mu.Unlock()
		return fmt.Errorf("%s: the %s is %w", op, kindText[o.kind], ib.ErrClosed)
	}
	return nil
}

// adopt initializes the tracking of a new object. The caller holds the device's mutex, and has held it since it found
// the objects in uses, so that none of them was closed in between.
func (d *device) adopt(o *object, kind kind, destroy func() error, uses ...*object) {
	*o = object{dev: d, kind: kind, uses: uses, destroy: destroy}
	for _, u := range uses {
		u.users[kind]++
	}
	// From here on closing the device destroys it, so whatever can fail comes before.
	d.objects[kind][o] = struct{}{}
}

// Close destroys the object, unless others use it. It is the Close of all types that embed an object. The device's
// mutex is held throughout, so destroy runs with it, and no verb finds an object that is half destroyed.
func (o *object) Close() error {
	o.dev.mu.Lock()
	defer o.dev.mu.Unlock()
	if o.closed {
		return nil
	}
	if who := o.usedBy(); who != "" {
		return fmt.Errorf("close %s: %w by %s; close them first", kindText[o.kind], ib.ErrBusy, who)
	}
	// The object stays open if the library or the kernel refuses: the program may try again.
	if err := o.destroy(); err != nil {
		return err
	}
	o.end()
	return nil
}

// end removes an object that the library has destroyed.
func (o *object) end() {
	o.closed = true
	for _, u := range o.uses {
		u.users[o.kind]--
	}
	delete(o.dev.objects[o.kind], o)
}

// usedBy describes the users for an error message: "2 QPs, 1 SRQ".
func (o *object) usedBy() string {
	var list []string
	for kind, n := range o.users {
		if n == 1 {
			list = append(list, "1 "+kindText[kind])
		} else if n > 1 {
			list = append(list, fmt.Sprintf("%d %ss", n, kindText[kind]))
		}
	}
	return strings.Join(list, ", ")
}

// find checks that an argument of a verb is an open object of this device, and returns it as a T.
// The caller holds the device's mutex. The C object of the result is certain to exist only as long as it is held.
func find[T interface{ base() *object }](d *device, op, attr string, arg any) (T, error) {
	t, ok := arg.(T)
	var err error
	switch {
	case arg == nil:
		err = ib.ErrInvalid
	case !ok || t.base().dev != d:
		err = ib.ErrForeign
	case t.base().closed:
		err = ib.ErrClosed
	default:
		return t, nil
	}
	return t, driver.Refuse(op, attr, fmt.Sprintf("%T", arg), "an open one of this device", err)
}

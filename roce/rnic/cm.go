//go:build rnic && cgo

package rnic

// #include "cmshim.h"
import "C"

import (
	"errors"
	"fmt"
	"sync"
	"syscall"

	"github.com/goroce/goroce/ib"
)

// cmPort is the device's view of the kernel's connection manager, which owns QP 1.
//
// librdmacm opens the device by itself, once for the process, and gives its IDs that context. It makes QPs in no other
// (rdma_create_qp_ex), and those of this package are of device.ctx. So no ID here has a QP, and librdmacm neither
// creates nor modifies any: the application does, and passes the number. Whether an ID has got to the right device is
// seen by the device's name (cmID.refresh).
//
// Every call of librdmacm but the creation of channels is made with mu held. None of them
// waits for a peer: their results are events. An event is read, converted to a Go value and
// acknowledged under mu too, so librdmacm never waits for the acknowledgement of an event when
// an ID is destroyed or migrated.
//
// Locks are taken in the order waiter, cmPort.mu, device.mu. So no verb calls the connection manager with the device's
// mutex held.
type cmPort struct {
	dev *device

	mu       sync.Mutex
	channels map[*cmChannel]struct{}        // until CM.Close, also if the reader has failed
	ids      map[*C.struct_rdma_cm_id]*cmID // all IDs that exist in librdmacm
	joins    uintptr                        // the number of the latest multicast join
	closed   bool                           // the device is being closed, or is closed
}

var _ ib.CMDevice = (*device)(nil)

func newCMPort(d *device) *cmPort {
	return &cmPort{dev: d, channels: map[*cmChannel]struct{}{}, ids: map[*C.struct_rdma_cm_id]*cmID{}}
}

// probeCM finds out whether the kernel lets this process use its connection manager:
// module rdma_ucm is loaded, and /dev/infiniband/rdma_cm can be opened. Only opening it tells. A container may have the
// device's uverbs file and not this one, so it is no error of Open if it cannot be opened.
func (d *device) probeCM() {
	if ch := C.rdma_create_event_channel(); ch != nil {
		C.rdma_destroy_event_channel(ch)
		d.attr.Caps |= ib.CapCM
	}
}

// OpenCM opens an event channel. It tries also if the device has no CapCM: the module may have been loaded since Open.
func (d *device) OpenCM() (ib.CM, error) {
	const op = "open connection manager"
	p := d.cm
	if err := p.lock(op); err != nil {
		return nil, err
	}
	defer p.mu.Unlock()
	c, err := C.rdma_create_event_channel()
	if c == nil {
		return nil, fmt.Errorf("%s of %s, which takes module rdma_ucm and rights to /dev/infiniband/rdma_cm: %w", op,
			d.name,
			errors.Join(ib.ErrNotSupported, err))
	}
	ch, err := newCMChannel(p, c)
	if err != nil {
		C.rdma_destroy_event_channel(c)
		return nil, fmt.Errorf("%s: %w", op, err)
	}
	p.channels[ch] = struct{}{}
	return ch, nil
}

// lock locks p.mu for a call. The caller unlocks it, unless lock returns an error.
func (p *cmPort) lock(op string) error {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return fmt.Errorf("%s: device %s is %w", op, p.dev.name, ib.ErrClosed)
	}
	return nil
}

// close ends all IDs, queues a CMDeviceRemoval event for each, and ends the channels. It returns
// when the channels' goroutines have ended.
//
// It is for device.Close, which calls it before it destroys QPs, and without the device's mutex. The Go values stay:
// IDs have c nil, and their methods fail with ib.ErrClosed; NextEvent does once it has returned the unread events.
// Close of both still works.
func (p *cmPort) close() {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return
	}
	// No call begins from here on, so that neither IDs nor channels are added.
	p.closed = true
	var ended []*cmChannel
	for ch := range p.channels {
		for id := range ch.ids {
			// The kernel's ID ends. Ours stays, for the event and until the program closes it.
			id.release()
			ch.put(id, ib.CMEvent{Type: ib.CMDeviceRemoval})
		}
		ch.end(nil)
		ended = append(ended, ch)
	}
	p.mu.Unlock()
	// Without mu, which the readers take, and stop waits for them.
	for _, ch := range ended {
		ch.stop()
	}
}

// cmSentinels has the sentinel errors for errnos of librdmacm whose meaning differs from verbs. For others those of
// verbs apply (sentinels).
var cmSentinels = map[syscall.Errno]error{
	syscall.EADDRINUSE: ib.ErrAddrInUse,
	// Addresses are checked before the call, so this is a conflict of ports: one of the two IDs
	// is bound to the port at all addresses, the other at one (Linux's cma_check_port).
	syscall.EADDRNOTAVAIL: ib.ErrAddrInUse,
	syscall.ENODEV:        ib.ErrNoAddr,
	syscall.EACCES:        ib.ErrPermission,
	C.RNIC_ENOTSUPP:       ib.ErrNotSupported,
}

// cmCheck converts the result of a function of cmshim.c, 0 or an errno, to an error.
func cmCheck(op string, ret C.int) error {
	if ret == 0 {
		return nil
	}
	errno := syscall.Errno(ret)
	if s := cmSentinels[errno]; s != nil {
		return fmt.Errorf("%s: %w (errno %d, %w)", op, s, int(errno), errno)
	}
	return verbError(op, errno)
}

// cmErrno converts the result of a function of librdmacm, which sets errno, to 0 or an errno as
// functions of cmshim.c return it. err is the second result of cgo. A failure without an errno counts as EINVAL.
func cmErrno(ret C.int, err error) C.int {
	if ret == 0 {
		return 0
	}
	errno := syscall.EINVAL
	errors.As(err, &errno)
	return C.int(errno)
}

// cmResult is cmCheck for the result of a function of librdmacm.
func cmResult(op string, ret C.int, err error) error { return cmCheck(op, cmErrno(ret, err)) }

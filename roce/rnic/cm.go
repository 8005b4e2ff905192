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

// cmPort is the device's part of the kernel's connection manager, which owns QP 1.
//
// Every call of librdmacm but the creation of channels is made with mu held. None of them
// waits for a peer: what comes of them are events. An event is read, acknowledged and
// turned into a Go value under mu too, so that librdmacm never waits for the
// acknowledgement of an event when an ID is destroyed or migrated.
//
// Locks are taken in the order waiter, cmPort.mu, device.mu.
type cmPort struct {
	dev *device

	mu       sync.Mutex
	channels map[*cmChannel]struct{}
	ids      map[*C.struct_rdma_cm_id]*cmID // all that librdmacm has
	joins    uintptr                        // how many there were; numbers them
	closed   bool
}

var _ ib.CMDevice = (*device)(nil)

func newCMPort(d *device) *cmPort {
	return &cmPort{dev: d, channels: map[*cmChannel]struct{}{}, ids: map[*C.struct_rdma_cm_id]*cmID{}}
}

// probeCM finds out whether the kernel lets this process use its connection manager:
// module rdma_ucm is loaded, and /dev/infiniband/rdma_cm can be opened.
func (d *device) probeCM() {
	if ch := C.rdma_create_event_channel(); ch != nil {
		C.rdma_destroy_event_channel(ch)
		d.attr.Caps |= ib.CapCM
	}
}

// OpenCM opens an event channel.
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

// lock begins a call, which takes the lock. The caller unlocks it, unless there is an error.
func (p *cmPort) lock(op string) error {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return fmt.Errorf("%s: device %s is %w", op, p.dev.name, ib.ErrClosed)
	}
	return nil
}

// close ends all IDs, tells their owners by CMDeviceRemoval, and ends the channels. It
// returns when no goroutine of theirs is left.
func (p *cmPort) close() {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return
	}
	p.closed = true
	var ended []*cmChannel
	for ch := range p.channels {
		for id := range ch.ids {
			id.release()
			ch.put(id, ib.CMEvent{Type: ib.CMDeviceRemoval})
		}
		ch.end(nil)
		ended = append(ended, ch)
	}
	p.mu.Unlock()
	for _, ch := range ended {
		ch.stop()
	}
}

// cmSentinels says what an errno of librdmacm means where that differs from verbs.
var cmSentinels = map[syscall.Errno]error{
	syscall.EADDRINUSE: ib.ErrAddrInUse,
	// The addresses of the device are checked before, so this is a port that another ID has
	// at all addresses, or wants at all (Linux's cma_check_port).
	syscall.EADDRNOTAVAIL: ib.ErrAddrInUse,
	syscall.ENODEV:        ib.ErrNoAddr,
	syscall.EACCES:        ib.ErrPermission,
	C.RNIC_ENOTSUPP:       ib.ErrNotSupported,
}

// cmCheck turns what a function of cmshim.c returns, 0 or an errno, into an error.
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

// cmErrno is what a function of librdmacm, which sets errno, would return in cmshim.c.
func cmErrno(ret C.int, err error) C.int {
	if ret == 0 {
		return 0
	}
	errno := syscall.EINVAL
	errors.As(err, &errno)
	return C.int(errno)
}

// cmResult is cmCheck for a function of librdmacm.
func cmResult(op string, ret C.int, err error) error { return cmCheck(op, cmErrno(ret, err)) }

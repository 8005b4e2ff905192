//go:build rnic && cgo

package rnic

// #include "shim.h"
import "C"

import (
	"context"
	"fmt"
	"math/bits"
	"sync"
	"syscall"
	"unsafe"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/ib/driver"
	"github.com/goroce/goroce/roce/internal/objects"
)

// cq is a completion queue. Either the application has given it a channel, and reads the events there, or Wait is
// used. Then the CQ is on the device's own channel (wakeups), whose goroutine passes each event on to waiter.
type cq struct {
	driver.Implementation

	object
	waiter *objects.Waiter // nil if events go to a channel of the application
	waking *channel        // with waiter: where its events come from
	mu     sync.Mutex
	// c is nil when the CQ is closed; guarded by mu, with the buffer for completions that it has. Verbs that pass its
	// library form on to others, such as CreateQP, hold the device's mutex instead: free holds both.
	c *C.struct_rnic_cq
}

// CreateCQ creates a completion queue.
func (d *device) CreateCQ(init ib.CQInit) (ib.CQ, error) {
	return d.createCQ(init, d.attr.Caps&ib.CapTimestamp != 0)
}

// createCQ creates a CQ. If extended is set it is an ibv_cq_ex, with timestamps if the device
// supports them. Tests set it on rdma_rxe, which has no timestamps, to poll the extended way.
func (d *device) createCQ(init ib.CQInit, extended bool) (ib.CQ, error) {
	const op = "create CQ"
	if err := d.checkEntries(op, init.Entries); err != nil {
		return nil, err
	}
	if n := d.attr.CompVectors; init.CompVector < 0 || init.CompVector >= n {
		return nil, driver.Refuse(op, "CompVector", init.CompVector, fmt.Sprintf("0 to %d", n-1), ib.ErrInvalid)
	}
	if err := d.lock(op); err != nil {
		return nil, err
	}
	defer d.mu.Unlock()
	q := &cq{}
	var ch *channel
	var err error
	if init.Channel != nil {
		ch, err = find[*channel](d, op, "Channel", init.Channel)
	} else {
		q.waiter = objects.NewWaiter()
		ch, err = d.wakeups()
		q.waking = ch
	}
	if err != nil {
		return nil, err
	}
	stamps := d.attr.Caps&ib.CapTimestamp != 0
	c, err := C.rnic_create_cq(d.ctx, C.int(roundUp(init.Entries, d.attr.MaxCQE)), ch.c, C.int(init.CompVector),
		cInt(extended), cInt(stamps))
	if c == nil {
		return nil, verbError(op, err)
	}
	q.c = c
	d.adopt(&q.object, kindCQ, q.free, &ch.object)
	d.names.add(q.address(), q)
	return q, nil
}

func (d *device) checkEntries(op string, n int) error {
	if n < 1 || n > d.attr.MaxCQE {
		return driver.Refuse(op, "Entries", n, fmt.Sprintf("1 to %d", d.attr.MaxCQE), ib.ErrInvalid)
	}
	return nil
}

// roundUp returns the smallest power of two that is at least n, or limit if that is less.
func roundUp(n, limit int) int { return min(1<<bits.Len(uint(n-1)), limit) }

func cInt(b bool) C.int {
	if b {
		return 1
	}
	return 0
}

// address returns the address by which events identify the CQ: that of the library's struct, also for an ibv_cq_ex. It
// must not be called when c.c is freed.
func (c *cq) address() uintptr { return uintptr(unsafe.Pointer(c.c.cq)) }

// lockQueue locks the CQ's mutex. The caller unlocks it, unless lockQueue returns an error.
func (c *cq) lockQueue(op string) error {
	c.mu.Lock()
	if c.c == nil {
		c.mu.Unlock()
		return fmt.Errorf("%s: the CQ is %w", op, ib.ErrClosed)
	}
	return nil
}

// Poll takes completions from the queue. It locks c.mu only, for the buffer through which they come. What was taken
// before an error is returned with it, since the queue does not have it any more.
func (c *cq) Poll(wcs []ib.WC) (n int, err error) {
	const op = "poll CQ"
	if err := c.lockQueue(op); err != nil {
		return 0, err
	}
	defer c.mu.Unlock()
	for n < len(wcs) {
		// One call takes a batch: calls from Go to C are dear.
		want := min(len(wcs)-n, C.RNIC_BATCH)
		got := int(C.rnic_poll(c.c, C.int(want)))
		if got < 0 {
			return n, verbError(op, syscall.Errno(-got))
		}
		for i := range c.c.wc[:got] {
			c.translate(&wcs[n+i], &c.c.wc[i])
		}
		n += got
		// The queue was empty, so another call would find little.
		if got < want {
			break
		}
	}
	return n, nil
}

// rxeVendor is the vendor ID of rdma_rxe, which marks an invalidated key with the kernel's flag
// IB_WC_WITH_INVALIDATE. In verbs.h that bit means a checksum.
const rxeVendor = 0xFFFFFF

// translate fills in a completion. Most fields of a failed one are undefined, and not copied.
// imm is what shim.c has read by the library's flags: the immediate as a number, or else the invalidated key.
func (c *cq) translate(to *ib.WC, from *C.struct_rnic_wc) {
	*to = ib.WC{ID: uint64(from.id), Status: ib.WCStatus(from.status), VendorErr: uint32(from.vendor_err),
		QPN: ib.QPN(from.qp_num)}
	if to.Status != ib.WCSuccess {
		return
	}
	to.Opcode = ib.WCOpcode(from.opcode)
	flags := from.flags
	if flags&C.IBV_WC_IP_CSUM_OK != 0 && c.dev.attr.VendorID == rxeVendor {
		flags |= C.IBV_WC_WITH_INV
	}
	to.Flags = ib.WCFlags(flags) & (ib.WCGRH | ib.WCWithImm | ib.WCWithInv)
	to.ByteLen = uint32(from.byte_len)
	to.SrcQP = ib.QPN(from.src_qp)
	switch {
	case to.Flags&ib.WCWithImm != 0:
		to.Imm = uint32(from.imm)
	case to.Flags&ib.WCWithInv != 0:
		to.InvalidatedKey = ib.Key(from.imm)
	}
	if c.c.stamps != 0 {
		to.Timestamp = c.dev.clock.instant(uint64(from.ticks))
	}
}

// Wait waits for completions. It needs no lock, as waiter and waking do not change. If the CQ or the device is closed
// meanwhile, Waiter.Close or the end of the device's channel ends it.
func (c *cq) Wait(ctx context.Context, wcs []ib.WC) (int, error) {
	if c.waiter == nil {
		return 0, objects.HasChannel()
	}
	return c.waiter.Wait(ctx, c, c.waking.ended, wcs)
}

// Arm requests an event for the next completion. The event goes to the CQ's channel; a CQ without a channel of the
// application is armed by Waiter.Wait.
func (c *cq) Arm(solicitedOnly bool) error {
	const op = "arm CQ"
	if err := c.lockQueue(op); err != nil {
		return err
	}
	defer c.mu.Unlock()
	return check(op, C.ibv_req_notify_cq(c.c.cq, cInt(solicitedOnly)))
}

// Entries returns the capacity, 0 once the CQ is closed.
func (c *cq) Entries() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.c == nil {
		return 0
	}
	return int(c.c.cq.cqe)
}

// Resize changes the capacity. It holds c.mu and not the device's mutex, so that Poll waits for it, and other verbs do
// not.
func (c *cq) Resize(entries int) error {
	const op = "resize CQ"
	if err := c.dev.checkEntries(op, entries); err != nil {
		return err
	}
	if err := c.lockQueue(op); err != nil {
		return err
	}
	defer c.mu.Unlock()
	// Under mu: the provider replaces the queue that Poll reads.
	ret := C.ibv_resize_cq(c.c.cq, C.int(roundUp(entries, c.dev.attr.MaxCQE)))
	if errno := syscall.Errno(max(ret, -ret)); errno == syscall.EINVAL {
		return driver.Refuse(op, "Entries", entries, "no fewer than the queue holds", why(errno, ib.ErrLimit))
	}
	return check(op, ret)
}

// free destroys the CQ. The library waits in it until the events of the CQ that were read are acknowledged, which
// channel.next and NextEvent do without the locks that are held here. Events that nobody has read are dropped by the
// kernel.
func (c *cq) free() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	// Before the destruction: it is read from c.
	address := c.address()
	if err := check("close CQ", C.rnic_destroy_cq(c.c)); err != nil {
		return err
	}
	c.dev.names.remove(address)
	c.c = nil
	// After c is nil, so that Arm fails: Wait calls it to find out why it was ended.
	if c.waiter != nil {
		c.waiter.Close()
	}
	return nil
}

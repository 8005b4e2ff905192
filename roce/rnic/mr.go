//go:build rnic && cgo

package rnic

// #include "shim.h"
import "C"

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"syscall"
	"unsafe"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/ib/driver"
	"github.com/goroce/goroce/roce/internal/objects"
)

// mr is a memory region.
//
// Rereg changes it with the device's mutex and mu held, and while it is not in refs. So a verb that holds the device's
// mutex, or a post that has found the region in refs, reads the fields without mu. It is for the methods that lock
// nothing else, such as LKey.
type mr struct {
	driver.Implementation

	object
	c   *C.struct_ibv_mr
	key ib.Key // key in refs.mrs, guarded by refs; 0 while requests cannot use the region

	// lost is not nil if ibv_rereg_mr has failed such that the region must not be used (ibv_rereg_mr(3)). It pins the
	// memory that the region was to get, which the device may access until Close. Guarded by the device's mutex.
	lost *runtime.Pinner

	mu     sync.RWMutex // guards the following fields
	lkey   ib.Key       // this and rkey are copies: Rereg changes those in c, and Close frees c
	rkey   ib.Key
	pd     *pd
	pin    *runtime.Pinner // pins buf, until the device cannot access it any more
	buf    []byte
	addr   uint64 // IOVA of buf[0]
	access ib.Access
}

// memoryRights are the access rights that libibverbs supports. ZeroBased is not among them: it is
// expressed by IOVA 0.
const memoryRights = ib.LocalWrite | ib.QPAccessMask | ib.BindWindows

// layout returns the address of the memory of init, and the IOVA under which it is registered. The address is a number
// from here on, which does not keep the memory alive: mr.buf does.
func layout(init *ib.MRInit) (base uintptr, iova uint64) {
	base = uintptr(unsafe.Pointer(unsafe.SliceData(init.Buf)))
	iova = init.IOVA
	if iova == 0 && init.Access&ib.ZeroBased == 0 {
		iova = uint64(base)
	}
	return base, iova
}

// pinned pins a buffer. Pinning its first byte pins the whole object that it lies in. Memory that is not of Go's heap,
// such as that of mmap, is not moved anyway, and Pin ignores it.
func pinned(buf []byte) *runtime.Pinner {
	pin := new(runtime.Pinner)
	if len(buf) > 0 {
		pin.Pin(unsafe.SliceData(buf))
	}
	return pin
}

// checkRights refuses access rights that libibverbs cannot express, or that contradict each other. OptionalAccess is
// accepted, and not passed on: a device may ignore those bits.
func checkRights(op string, access ib.Access) error {
	value := fmt.Sprintf("%#x", uint32(access))
	switch {
	case access&ib.RemoteInvalidate != 0:
		return driver.Refuse(op, "Access", value,
			"no RemoteInvalidate: through libibverbs peers invalidate windows of type 2 only", ib.ErrNotSupported)
	case access&^(memoryRights|ib.ZeroBased|ib.OptionalAccess) != 0:
		return driver.Refuse(op, "Access", value, fmt.Sprintf("bits of %#x", uint32(memoryRights|ib.ZeroBased)),
			ib.ErrInvalid)
	case access&(ib.RemoteWrite|ib.RemoteAtomic) != 0 && access&ib.LocalWrite == 0: // IBTA 11.2.8.2
		return driver.Refuse(op, "Access", value, "RemoteWrite and RemoteAtomic only together with LocalWrite",
			ib.ErrInvalid)
	}
	return nil
}

// RegMR registers memory, and pins it. The kernel holds the pages, and the pin holds the object at its address, so that
// it stays in those pages. buf stays alive until Close, even if the program forgets the region: the device's list of
// objects refers to it.
func (p *pd) RegMR(init ib.MRInit) (ib.MR, error) {
	const op = "register memory"
	if err := checkRights(op, init.Access); err != nil {
		return nil, err
	}
	if init.Access&ib.ZeroBased != 0 && init.IOVA != 0 {
		return nil, driver.Refuse(op, "IOVA", fmt.Sprintf("%#x", init.IOVA), "0 with ZeroBased", ib.ErrInvalid)
	}
	base, iova := layout(&init)
	if pages := uint64(os.Getpagesize()); (iova^uint64(base))%pages != 0 { // ib_uverbs_reg_mr
		return nil, driver.Refuse(op, "IOVA", fmt.Sprintf("%#x", iova),
			fmt.Sprintf("addresses that leave %#x when divided by the page size, as that of the memory does",
				uint64(base)%pages), ib.ErrInvalid)
	}
	if err := p.lock(op); err != nil {
		return nil, err
	}
	defer p.dev.mu.Unlock()
	// Pinned before the kernel takes the pages. Go does not move memory of the heap today, but only a pin promises
	// that.
	m := &mr{pd: p, pin: pinned(init.Buf), buf: init.Buf, access: init.Access}
	c, err := C.rnic_reg_mr(p.c, C.uintptr_t(base), C.size_t(len(init.Buf)), C.uint64_t(iova),
		C.int(init.Access&memoryRights))
	if c == nil {
		m.pin.Unpin()
		return nil, m.explain(op, err)
	}
	m.c, m.lkey, m.rkey, m.addr = c, ib.Key(c.lkey), ib.Key(c.rkey), iova
	p.dev.adopt(&m.object, kindMR, m.free, &p.object)
	p.dev.refs.addMR(m)
	return m, nil
}

// explain adds the likely reason to the error of a device that has refused a region. m was not registered, and has only
// the fields of its request.
func (m *mr) explain(op string, err error) error {
	if errors.Is(err, syscall.EOPNOTSUPP) || errors.Is(err, syscall.EINVAL) {
		return driver.Refuse(op, "Access", fmt.Sprintf("%#x, %d bytes", uint32(m.access), len(m.buf)),
			"rights that the device has (Attr().Caps), on at least 1 byte", why(err, ib.ErrLimit))
	}
	return verbError(op, err)
}

// Addr returns the address of the first byte.
func (m *mr) Addr() uint64 {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.addr
}

// Len returns the length in bytes.
func (m *mr) Len() int {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return len(m.buf)
}

// LKey returns the local key.
func (m *mr) LKey() ib.Key {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.lkey
}

// RKey returns the remote key.
func (m *mr) RKey() ib.Key {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.rkey
}

// SGE names a part of the region.
func (m *mr) SGE(off, n int) ib.SGE { return objects.SGE(m, off, n) }

// Rereg changes memory, domain or rights. next only carries what the region becomes. What the mask does not name is
// taken from m.
func (m *mr) Rereg(mask ib.ReregMask, to ib.PD, init ib.MRInit) error {
	const op = "re-register memory"
	if mask == 0 || mask&^(ib.ReregTranslation|ib.ReregPD|ib.ReregAccess) != 0 {
		return driver.Refuse(op, "mask", fmt.Sprintf("%#x", uint8(mask)),
			"one or more of the Rereg constants of package ib", ib.ErrInvalid)
	}
	if err := m.lock(op); err != nil {
		return err
	}
	defer m.dev.mu.Unlock()
	if m.lost != nil {
		return driver.Refuse(op, "region", "lost by an earlier change that failed", "Close only", ib.ErrState)
	}
	next := &mr{pd: m.pd, pin: m.pin, buf: m.buf, addr: m.addr, access: m.access}
	var err error
	if mask&ib.ReregPD != 0 {
		if next.pd, err = find[*pd](m.dev, op, "PD", to); err != nil {
			return err
		}
	}
	if mask&ib.ReregAccess != 0 {
		if err := checkRights(op, init.Access); err != nil {
			return err
		}
		next.access = init.Access
	}
	if mask&ib.ReregTranslation != 0 {
		base, _ := layout(&ib.MRInit{Buf: init.Buf})
		if init.IOVA != 0 && init.IOVA != uint64(base) {
			return driver.Refuse(op, "IOVA", fmt.Sprintf("%#x", init.IOVA),
				"0: ibv_rereg_mr names memory by its own address only", ib.ErrNotSupported)
		}
		next.buf, next.addr, next.pin = init.Buf, uint64(base), pinned(init.Buf)
	}
	return m.become(op, mask, next)
}

// become reregisters the region with the memory, PD and rights of next. Both buffers are pinned during the call. The
// caller holds the device's mutex.
func (m *mr) become(op string, mask ib.ReregMask, next *mr) error {
	m.dev.refs.removeMR(m) // so that no request finds it by its old key
	// The library refuses arguments that are not in the mask.
	var base uintptr
	var length int
	var domain *C.struct_ibv_pd
	var access ib.Access
	if mask&ib.ReregTranslation != 0 {
		base, length = uintptr(unsafe.Pointer(unsafe.SliceData(next.buf))), len(next.buf)
	}
	if mask&ib.ReregPD != 0 {
		domain = next.pd.c
	}
	if mask&ib.ReregAccess != 0 {
		access = next.access & memoryRights
	}
	ret := int(C.rnic_rereg_mr(m.c, C.int(mask), domain, C.uintptr_t(base), C.size_t(length), C.int(access)))
	m.settle(ret, next)
	err := check(op, ret)
	if m.lost != nil {
		return fmt.Errorf("%w; the region can only be closed", err)
	}
	return err
}

// settle makes the region what it is after rnic_rereg_mr has returned ret. It unpins the buffer that the device cannot
// access any more: the old one after a success, and the new one if the region is as before. The library may have
// changed the keys in any case.
func (m *mr) settle(ret int, next *mr) {
	m.mu.Lock()
	m.lkey, m.rkey = ib.Key(m.c.lkey), ib.Key(m.c.rkey)
	switch {
	case ret == 0:
		if next.pin != m.pin {
			m.pin.Unpin()
		}
		// The old PD may be closed now, and the new one not. Without a change of the PD this has no effect.
		m.pd.users[kindMR]--
		next.pd.users[kindMR]++
		m.uses[0] = &next.pd.object
		m.pd, m.pin, m.buf, m.addr, m.access = next.pd, next.pin, next.buf, next.addr, next.access
	case ret < 0:
		m.lost = next.pin
	case next.pin != m.pin:
		next.pin.Unpin()
	}
	m.mu.Unlock()
	m.dev.refs.addMR(m)
}

// free deregisters the region. rdma_rxe returns EINVAL while windows are bound to it.
func (m *mr) free() error {
	const op = "close memory region"
	// Binds, and ATOMIC WRITEs that copy from it, must not find it during the call, which frees m.c.
	m.dev.refs.removeMR(m)
	if ret := C.ibv_dereg_mr(m.c); ret != 0 {
		m.dev.refs.addMR(m)
		if err := syscall.Errno(max(ret, -ret)); err == syscall.EINVAL || err == syscall.EBUSY {
			return fmt.Errorf("%s: %w by memory windows that are bound to it (errno %d); close or unbind them first",
				op, ib.ErrBusy, int(err))
		}
		return check(op, ret)
	}
	// Not before: until the call returned, the device could access the memory.
	m.pin.Unpin()
	if m.lost != nil {
		m.lost.Unpin() // maybe the same, which has no effect
	}
	return nil
}

//go:build rnic && cgo

package rnic

// #include "shim.h"
import "C"

import (
	"errors"
	"fmt"
	"slices"
	"syscall"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/ib/driver"
)

// ah is an address handle. Its C form and attr are guarded by refs.
//
// Requests name it by num, which stays when Modify puts another C handle behind it. So posting resolves the number
// (refs.ah) with refs locked, and passes the C handle of that moment to the library.
type ah struct {
	driver.Implementation

	object
	pd   *pd
	num  ib.AHNum
	c    *C.struct_ibv_ah
	attr ib.AHAttr
	old  []*C.struct_ibv_ah // replaced by Modify, oldest first; posted requests may still use them
}

// maxOldAHs bounds how many replaced C handles are kept. Requests that use an older one
// have been sent long ago.
//
// They are kept since a provider may refer to the handle in a request, and not copy the address. librxe posts the
// number of the kernel's handle, which rdma_rxe looks up when it sends (rxe_get_av).
const maxOldAHs = 64

// CreateAH creates an address handle.
func (p *pd) CreateAH(attr ib.AHAttr) (ib.AH, error) {
	const op = "create address handle"
	if err := p.lock(op); err != nil {
		return nil, err
	}
	defer p.dev.mu.Unlock()
	a := &ah{pd: p, attr: attr}
	var err error
	if a.c, err = p.createAH(op, &attr); err != nil {
		return nil, err
	}
	p.dev.adopt(&a.object, kindAH, a.free, &p.object)
	a.num = p.dev.refs.addAH(a)
	return a, nil
}

// createAH creates the C form. The caller holds the device's mutex.
//
// This may take long: the kernel resolves the peer's MAC address in it (ib_resolve_eth_dmac). It fails with
// ENETUNREACH, EHOSTUNREACH or ETIMEDOUT if there is no route, or no answer.
func (p *pd) createAH(op string, attr *ib.AHAttr) (*C.struct_ibv_ah, error) {
	if err := p.dev.checkAH(op, attr); err != nil {
		return nil, err
	}
	vector := cAH(attr)
	c, err := C.ibv_create_ah(p.c, &vector)
	if c != nil {
		return c, nil
	}
	var errno syscall.Errno
	if errors.As(err, &errno) {
		if err := p.dev.explainAH(op, attr, errno); err != nil {
			return nil, err
		}
	}
	return nil, verbError(op, err)
}

// checkAH refuses an address vector with values that its C form would truncate.
func (d *device) checkAH(op string, a *ib.AHAttr) error {
	switch {
	case a.SGIDIndex < 0 || a.SGIDIndex > 255: // 8 bits in ibv_global_route
		return driver.Refuse(op, "AH", fmt.Sprintf("SGID index %d", a.SGIDIndex), "0 to 255, a row of the GID table",
			ib.ErrInvalid)
	case a.Port < 0 || a.Port > d.attr.Ports:
		return driver.Refuse(op, "AH", fmt.Sprintf("port %d", a.Port), fmt.Sprintf("1 to %d", d.attr.Ports),
			ib.ErrInvalid)
	case a.FlowLabel >= 1<<20:
		return driver.Refuse(op, "AH", fmt.Sprintf("flow label %#x", a.FlowLabel), "20 bits", ib.ErrInvalid)
	case a.DGID.Addr().IsUnspecified():
		return driver.Refuse(op, "AH", fmt.Sprintf("DGID %v", a.DGID),
			"the peer's address in GID form, IPv4 as ::ffff:a.b.c.d", ib.ErrInvalid)
	}
	return nil
}

// explainAH returns an error that names the field of an address vector which the kernel has
// refused, or nil if that is not known. Most errnos do not tell the field, so the SGID index is looked up in the GID
// table. The caller holds the device's mutex.
func (d *device) explainAH(op string, a *ib.AHAttr, errno syscall.Errno) error {
	reason := why(errno, ib.ErrLimit)
	switch errno {
	case syscall.ENETUNREACH, syscall.EHOSTUNREACH, syscall.ETIMEDOUT:
		return driver.Refuse(op, "AH", fmt.Sprintf("DGID %v", a.DGID),
			"the address of a host that there is a route to, and that answers", reason)
	}
	rows, err := d.gids(op, max(a.Port, 1))
	if err != nil {
		return nil
	}
	for i := range rows {
		if rows[i].Index == a.SGIDIndex && rows[i].GID.Is4() == a.DGID.Is4() {
			return nil
		}
	}
	return driver.Refuse(op, "AH", fmt.Sprintf("SGID index %d", a.SGIDIndex),
		"a row of the GID table, of the same IP version as the DGID", reason)
}

// defaultHopLimit is the default hop limit of Linux routes.
const defaultHopLimit = 64

// cAH returns the C form of an address vector.
func cAH(a *ib.AHAttr) C.struct_ibv_ah_attr {
	c := C.struct_ibv_ah_attr{is_global: 1, port_num: C.uint8_t(max(a.Port, 1))} // RoCE has no addresses but GIDs
	c.grh.dgid = cGID(a.DGID)
	c.grh.sgid_index = C.uint8_t(a.SGIDIndex)
	c.grh.flow_label = C.uint32_t(a.FlowLabel)
	c.grh.traffic_class = C.uint8_t(a.TrafficClass)
	c.grh.hop_limit = C.uint8_t(a.HopLimit)
	if a.HopLimit == 0 {
		c.grh.hop_limit = defaultHopLimit
	}
	return c
}

// goAH is the inverse of cAH. A QP that has no address vector yet, before RTR or of type UD, gives the zero value.
func goAH(c *C.struct_ibv_ah_attr) ib.AHAttr {
	if c.is_global == 0 {
		return ib.AHAttr{} // not set yet
	}
	return ib.AHAttr{
		DGID:         goGID(&c.grh.dgid),
		SGIDIndex:    int(c.grh.sgid_index),
		Port:         int(c.port_num),
		TrafficClass: uint8(c.grh.traffic_class),
		HopLimit:     uint8(c.grh.hop_limit),
		FlowLabel:    uint32(c.grh.flow_label),
	}
}

// Num returns the handle's number.
func (a *ah) Num() ib.AHNum { return a.num }

// Query returns the address vector as it was set.
func (a *ah) Query() (ib.AHAttr, error) {
	if err := a.lock("query address handle"); err != nil {
		return ib.AHAttr{}, err
	}
	defer a.dev.mu.Unlock()
	return a.attr, nil
}

// Modify changes the address behind the handle's number. libibverbs has no verb for that, so it
// creates another C handle.
func (a *ah) Modify(attr ib.AHAttr) error {
	const op = "modify address handle"
	if err := a.lock(op); err != nil {
		return err
	}
	defer a.dev.mu.Unlock()
	c, err := a.pd.createAH(op, &attr)
	if err != nil {
		return err
	}
	// With refs locked no post is between the look-up and the library. Later ones use the new handle.
	r := &a.dev.refs
	r.Lock()
	a.old = append(a.old, a.c)
	a.c, a.attr = c, attr
	r.Unlock()
	// One that cannot be destroyed is no error, since the address has changed. It stays for the next Modify, or Close.
	for len(a.old) > maxOldAHs && C.ibv_destroy_ah(a.old[0]) == 0 {
		a.old = slices.Delete(a.old, 0, 1)
	}
	return nil
}

// free destroys all C handles, those that Modify has replaced first. If one cannot be destroyed, free may be called
// again: old has only those that are left. But requests do not find the number any more.
func (a *ah) free() error {
	const op = "close address handle"
	a.dev.refs.removeAH(a)
	for len(a.old) > 0 {
		last := len(a.old) - 1
		if err := check(op, C.ibv_destroy_ah(a.old[last])); err != nil {
			return err
		}
		a.old = a.old[:last]
	}
	return check(op, C.ibv_destroy_ah(a.c))
}

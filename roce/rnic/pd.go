//go:build rnic && cgo

package rnic

// #include "shim.h"
import "C"

import (
	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/ib/driver"
)

// pd is a protection domain. c does not change, and is valid until the PD is closed. That the PD outlives what was
// made in it is counted by object, so objects keep a *pd and use its c.
type pd struct {
	driver.Implementation

	object
	c *C.struct_ibv_pd
}

// AllocPD allocates a protection domain.
func (d *device) AllocPD() (ib.PD, error) {
	const op = "allocate protection domain"
	if err := d.lock(op); err != nil {
		return nil, err
	}
	defer d.mu.Unlock()
	c, err := C.ibv_alloc_pd(d.ctx)
	if c == nil {
		return nil, verbError(op, err)
	}
	p := &pd{c: c}
	d.adopt(&p.object, kindPD, p.free)
	return p, nil
}

func (p *pd) free() error { return check("close protection domain", C.ibv_dealloc_pd(p.c)) }

// xrcd is an XRC domain.
type xrcd struct {
	driver.Implementation

	object
	c *C.struct_ibv_xrcd
}

// AllocXRCD allocates an XRC domain that no other process shares: verbs could name a file by whose inode processes find
// a common one (ibv_open_xrcd), but package ib has no such parameter.
func (d *device) AllocXRCD() (ib.XRCD, error) {
	const op = "allocate XRC domain"
	if err := d.lock(op); err != nil {
		return nil, err
	}
	defer d.mu.Unlock()
	c, err := C.rnic_open_xrcd(d.ctx)
	if c == nil {
		return nil, verbError(op, err)
	}
	x := &xrcd{c: c}
	d.adopt(&x.object, kindXRCD, x.free)
	return x, nil
}

func (x *xrcd) free() error { return check("close XRC domain", C.ibv_close_xrcd(x.c)) }

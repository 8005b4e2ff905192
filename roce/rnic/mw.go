//go:build rnic && cgo

package rnic

// #include "shim.h"
import "C"

import (
	"fmt"
	"sync/atomic"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/ib/driver"
)

// This file has memory windows. One of type 1 is bound by a verb (Bind). The library chooses the key, and the binding
// belongs to the PD. One of type 2 is bound by a send request (putBind, bound). The program chooses the key's low byte,
// and the binding belongs to the QP, so it is taken off before the QP is destroyed (renew).

// mw is a memory window. c is used with refs locked, or with the device's mutex. renew replaces it with both; free
// takes the window out of refs first. rkey is changed with refs locked for writing, and is atomic for RKey, which locks
// nothing.
type mw struct {
	driver.Implementation

	object
	c    *C.struct_ibv_mw
	pd   *pd
	typ  ib.MWType
	rkey atomic.Uint32

	// What the window was last bound to; guarded by refs.
	region *mr        // type 1: for the next unbinding
	qp     *queuePair // type 2: its windows has w; nil if w is not bound
}

// AllocMW allocates a memory window that is not bound.
func (p *pd) AllocMW(typ ib.MWType) (ib.MW, error) {
	const op = "allocate memory window"
	if typ != ib.MWType1 && typ != ib.MWType2 {
		return nil, driver.Refuse(op, "type", typ, "MWType1 or MWType2", ib.ErrInvalid)
	}
	if err := p.lock(op); err != nil {
		return nil, err
	}
	defer p.dev.mu.Unlock()
	c, err := C.ibv_alloc_mw(p.c, uint32(typ))
	if c == nil {
		return nil, verbError(op, err)
	}
	w := &mw{c: c, pd: p, typ: typ}
	w.rkey.Store(uint32(c.rkey))
	p.dev.adopt(&w.object, kindMW, w.free, &p.object)
	p.dev.refs.addMW(w)
	return w, nil
}

// Type returns the kind of window.
func (w *mw) Type() ib.MWType { return w.typ }

// RKey returns the R_Key that the last bind gave it.
func (w *mw) RKey() ib.Key { return ib.Key(w.rkey.Load()) }

// Bind posts the binding of a window of type 1. The library makes a request of it on the QP's send queue, and chooses
// the key. So Bind locks as a post does, and needs the device's mutex only to find the QP.
func (w *mw) Bind(on ib.QP, id uint64, flags ib.SendFlags, b ib.MWBind) error {
	const op = "bind memory window"
	if w.typ != ib.MWType1 {
		return driver.Refuse(op, "window", w.typ, "type 1; PostSend with BindMW binds type 2", ib.ErrInvalid)
	}
	if b.Access&ib.ZeroBased != 0 { // IBTA o10-36.2.2
		return driver.Refuse(op, "Access", fmt.Sprintf("%#x", uint32(b.Access)), "no ZeroBased for windows of type 1",
			ib.ErrInvalid)
	}
	if err := w.lock(op); err != nil {
		return err
	}
	q, err := find[*queuePair](w.dev, op, "QP", on)
	// find has needed it. The queue's lock and refs guard the post; that the window or the QP is closed meanwhile is
	// seen under them.
	w.dev.mu.Unlock()
	if err != nil {
		return err
	}
	s := &q.send
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := q.canSend(op + " on"); err != nil {
		return err
	}
	r := &w.dev.refs
	r.Lock()
	defer r.Unlock()
	if r.mws[w.RKey()&^0xFF] != w {
		return fmt.Errorf("%s: the window is %w", op, ib.ErrClosed)
	}
	m, err := w.regionOf(&b)
	if err != nil {
		return err
	}
	if err := postError(C.rnic_bind_mw(s.c.qp, w.c, C.uint64_t(id), C.uint32_t(flags), m.c,
		C.uint64_t(b.Addr), C.uint64_t(b.Length), C.uint32_t(b.Access))); err != nil {
		return fmt.Errorf("%s: %w", op, err)
	}
	// The library gives out the key at once. Whether the bind succeeds its completion tells.
	w.region = m
	w.rkey.Store(uint32(w.c.rkey))
	return nil
}

// regionOf returns the region for a bind of w. A bind of length 0, which unbinds the window, may
// leave LKey 0, but the library needs a region: then it is the last one. The caller holds refs.
func (w *mw) regionOf(b *ib.MWBind) (*mr, error) {
	const op = "bind memory window"
	m := w.dev.refs.mrs[b.LKey]
	if b.LKey == 0 && b.Length == 0 && w.region != nil && w.region.key != 0 {
		m = w.region
	}
	if m == nil {
		return nil, driver.Refuse(op, "LKey", fmt.Sprintf("%#x", uint32(b.LKey)),
			"that of an open region of this device",
			ib.ErrInvalid)
	}
	if m.pd != w.pd {
		return nil, driver.Refuse(op, "LKey", fmt.Sprintf("%#x", uint32(b.LKey)),
			"that of a region in the window's protection domain", ib.ErrForeign)
	}
	return m, nil
}

// bound notes that a bind of a window of type 2 was posted. The caller holds refs
// for writing. The window counts as bound from here on, until another QP binds it: whether the bind fails, or the key
// is invalidated later, is not tracked. At worst renew replaces the window without need.
func (w *mw) bound(on *queuePair, key ib.Key) {
	w.rkey.Store(uint32(key))
	w.forgetQP()
	w.qp = on
	on.windows[w] = struct{}{}
}

// forgetQP takes w off its QP's list. The caller holds refs for writing.
func (w *mw) forgetQP() {
	if w.qp != nil {
		delete(w.qp.windows, w)
		w.qp = nil
	}
}

// renew replaces the C window of w, whose QP is about to be destroyed: rdma_rxe takes 50 seconds
// to destroy a QP with bound windows, and logs a kernel warning. The caller holds refs for
// writing and the device's mutex. For the program the window stays the same, unbound, with a key of another index.
func (w *mw) renew(op string) error {
	c, err := C.ibv_alloc_mw(w.pd.c, uint32(w.typ))
	if c == nil {
		return verbError(op, err)
	}
	// The new one was made first: an error leaves the old window as it was, and the QP open.
	if err := check(op, C.ibv_dealloc_mw(w.c)); err != nil {
		C.ibv_dealloc_mw(c)
		return err
	}
	r := &w.dev.refs
	delete(r.mws, w.RKey()&^0xFF)
	w.forgetQP()
	w.c = c
	w.rkey.Store(uint32(c.rkey))
	r.mws[w.RKey()&^0xFF] = w
	return nil
}

// free deallocates the window, which also ends its binding.
func (w *mw) free() error {
	// Before the library's call, so that no post uses the window during it.
	r := &w.dev.refs
	r.removeMW(w)
	if err := check("close memory window", C.ibv_dealloc_mw(w.c)); err != nil {
		r.addMW(w)
		return err
	}
	// Not before, as the binding ends with the window.
	r.Lock()
	defer r.Unlock()
	w.forgetQP()
	return nil
}

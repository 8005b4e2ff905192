package mr

import "github.com/goroce/goroce/ib"

// windowAccess are the rights that a bind may grant.
const windowAccess = ib.RemoteWrite | ib.RemoteRead | ib.RemoteAtomic | ib.FlushGlobal | ib.FlushPersistent |
	ib.ZeroBased

// Bind binds a window to a part of a region, for a QP of pd when its request is executed (IBTA 10.6.7.2, 11.2.10.11).
// The upper bits of key identify the window. The lower 8 are its new variant, which must differ from the current one so
// that the old key opens nothing. From then on peers reach the memory by key: at the addresses of the region, or with
// ZeroBased from 0 on.
//
// A window of type 1 may be bound already, which ends its earlier binding; with Length 0 Bind only does that, and
// ignores the rest of b. A window of type 2 must be free, and belongs to QP qpn from then on. A fault changes nothing.
// Faults, in this order:
//   - FaultKey: key belongs to no window; FaultPD: the window is of another protection domain
//   - FaultState: the window is of type 2 and bound
//   - FaultBind: the variant is the current one; Length is 0 with type 2
//   - FaultKey: LKey belongs to no region; FaultPD: the region is of another protection domain
//   - FaultBind: Access has more than remote rights and ZeroBased; the region is zero based; the window is of type 1
//     and would be zero based (the last two as in rdma_rxe and mlx5)
//   - FaultAccess: the region does not have BindWindows; LocalWrite for a window with RemoteWrite or RemoteAtomic;
//     FlushGlobal or FlushPersistent for a window with that right
//   - FaultBounds: the bytes are not all in the region
//   - FaultBind: with RemoteAtomic, the window's addresses and those of the memory differ modulo 8
//
// rdma_rxe also accepts the current variant, checks only the length of a zero-based window, and checks accesses through
// a window against the bounds of the region.
func (t *Table) Bind(pd *PD, qpn ib.QPN, key ib.Key, b ib.MWBind) Fault {
	t.mu.Lock()
	defer t.mu.Unlock()
	w := t.windowAt(key)
	switch {
	case w == nil:
		return FaultKey
	case w.pd != pd:
		return FaultPD
	case w.typ == ib.MWType2 && w.bound != nil:
		return FaultState
	case w.Key() == key, w.typ == ib.MWType2 && b.Length == 0:
		return FaultBind
	}
	var piece *Region
	if b.Length > 0 {
		r := t.lookup(b.LKey)
		off, fault := w.bindable(r, b)
		if fault != FaultNone {
			return fault
		}
		piece = r.windowPart(w, key, qpn, off, b)
		t.guard(piece)
	}
	t.unbind(w)
	w.key.Store(uint32(key))
	if piece != nil {
		w.bound = piece
		piece.parent.windows++
		t.slot(key).region.Store(piece)
	}
	return FaultNone
}

// bindable checks whether w may be bound to the part of r that b describes, and returns its offset in r. r may be nil.
func (w *Window) bindable(r *Region, b ib.MWBind) (uint64, Fault) {
	switch {
	case r == nil || r.window != nil:
		return 0, FaultKey
	case r.pd != w.pd:
		return 0, FaultPD
	case b.Access&^windowAccess != 0,
		r.access&ib.ZeroBased != 0,
		w.typ == ib.MWType1 && b.Access&ib.ZeroBased != 0:
		return 0, FaultBind
	case r.access&ib.BindWindows == 0,
		b.Access&(ib.RemoteWrite|ib.RemoteAtomic) != 0 && r.access&ib.LocalWrite == 0,
		b.Access&(ib.FlushGlobal|ib.FlushPersistent)&^r.access != 0:
		return 0, FaultAccess
	}
	off, ok := r.offset(b.Addr, b.Length)
	if !ok {
		return 0, FaultBounds
	}
	if b.Access&ib.RemoteAtomic != 0 && (windowAddr(b)^(r.wordPhase()+off))%8 != 0 {
		return 0, FaultBind
	}
	return off, FaultNone
}

// windowAddr returns the address of the window's first byte for peers.
func windowAddr(b ib.MWBind) uint64 {
	if b.Access&ib.ZeroBased != 0 {
		return 0
	}
	return b.Addr
}

// windowPart returns the part of r, from off on, that w opens.
func (r *Region) windowPart(w *Window, key ib.Key, qpn ib.QPN, off uint64, b ib.MWBind) *Region {
	p := &Region{
		key: key, pd: w.pd, mem: r.mem, iova: windowAddr(b), length: b.Length, access: b.Access,
		window: w, parent: r, base: off, qpn: qpn,
	}
	if r.direct != nil {
		p.direct = r.direct[off : off+b.Length : off+b.Length]
	}
	return p
}

// windowAt returns the window with the index of key, nil if there is none. The caller holds mu.
func (t *Table) windowAt(key ib.Key) *Window {
	if w := t.slot(key).window; w != nil && w.Key()>>8 == key>>8 {
		return w
	}
	return nil
}

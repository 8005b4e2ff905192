package mr

import (
	"fmt"
	"sync/atomic"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/ib/driver"
)

// Window is a memory window: a key that can be bound to a part of a region, with access rights of its own for peers,
// and unbound again, at less cost than a registration (IBTA 10.6.7). Its methods may be called from several goroutines,
// also after FreeWindow.
//
// The upper 24 bits of the key never change. A bind chooses the lower 8, the variant. A window of type 2 is free until
// it is bound to a QP; only an invalidation makes it free again. It may outlive that QP; then only FreeWindow can end
// it.
type Window struct {
	pd    *PD
	typ   ib.MWType
	key   atomic.Uint32
	bound *Region // the part of a region that it opens, nil while unbound; guarded by Table.mu
	freed bool    // guarded by Table.mu
}

// Key returns the current R_Key: that of the latest bind, even if it has been invalidated since.
func (w *Window) Key() ib.Key { return ib.Key(w.key.Load()) }

// Type returns the window's type.
func (w *Window) Type() ib.MWType { return w.typ }

// PD returns the protection domain.
func (w *Window) PD() *PD { return w.pd }

// AllocWindow makes a window for the users of pd; its key opens nothing yet.
// Errors are an *ib.AttrError for an unknown type, ib.ErrLimit when the table is
// full, ib.ErrForeign and ib.ErrClosed for pd.
func (t *Table) AllocWindow(pd *PD, typ ib.MWType) (*Window, error) {
	const op = "allocate memory window"
	if typ != ib.MWType1 && typ != ib.MWType2 {
		return nil, driver.Refuse(op, "Type", uint8(typ), "MWType1 (1) or MWType2 (2)", ib.ErrInvalid)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.holds(pd); err != nil {
		return nil, err
	}
	key, err := t.takeKey(op)
	if err != nil {
		return nil, err
	}
	w := &Window{pd: pd, typ: typ}
	w.key.Store(uint32(key))
	t.slot(w.Key()).window = w
	pd.users[UserWindow]++
	return w, nil
}

// FreeWindow removes a window from the table. If it is bound, it is unbound first, as by Invalidate. The error is
// ib.ErrClosed the second time, ib.ErrForeign for another table's window.
func (t *Table) FreeWindow(w *Window) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case w.pd.table != t:
		return fmt.Errorf("free memory window: key %#x: %w", uint32(w.Key()), ib.ErrForeign)
	case w.freed:
		return fmt.Errorf("free memory window: key %#x: %w", uint32(w.Key()), ib.ErrClosed)
	}
	t.unbind(w)
	w.freed = true
	t.slot(w.Key()).window = nil
	t.used--
	w.pd.users[UserWindow]--
	return nil
}

// unbind ends the binding of w, if there is one: its key opens nothing any more, and accesses by Spans that were
// checked through it fail. The caller holds mu.
func (t *Table) unbind(w *Window) {
	r := w.bound
	if r == nil {
		return
	}
	w.bound = nil
	r.revoke()
	r.parent.windows--
	t.slot(w.Key()).region.Store(nil)
	t.end(w.Key(), ib.KeyRebound, 0)
}

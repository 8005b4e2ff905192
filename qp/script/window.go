package script

import (
	"fmt"

	"github.com/goroce/goroce/ib"
)

// addMW allocates a memory window. Its name has no memory until a bind.
func (r *runner) addMW(e *endpoint, a *args) error {
	mem, err := r.newArea(a.next(), 0)
	if err != nil {
		return err
	}
	typ := ib.MWType(a.num("type", uint64(ib.MWType2), 8))
	if mem.window, err = e.table.AllocWindow(e.domain(a), typ); err != nil {
		return err
	}
	mem.key = mem.window.Key()
	return nil
}

// bind fills in a request that binds a window. From here on the window's name stands
// for the new key and the bound memory, even if the request fails.
func (r *runner) bind(a *args, wr *ib.SendWR) error {
	name, _ := a.value("mw")
	mw := r.areas[name]
	if mw == nil || mw.window == nil {
		return fmt.Errorf("bind what? mw=W, a window")
	}
	to, _ := a.value("to")
	region, off, err := r.address(to)
	if err != nil {
		return err
	}
	wr.Bind = ib.MWBind{LKey: region.key, Addr: region.addr + uint64(off), Length: a.num("len", 0, 32)}
	if v, ok := a.value("access"); ok {
		if wr.Bind.Access, err = parseAccess(v); err != nil {
			return err
		}
		wr.Bind.Access &^= ib.LocalWrite // only regions have this right
	}
	mw.key, mw.addr, mw.size = ib.NextKey(mw.key), wr.Bind.Addr, int(wr.Bind.Length)
	if wr.Bind.Access&ib.ZeroBased != 0 {
		mw.addr = 0
	}
	wr.RKey = mw.key
	return nil
}

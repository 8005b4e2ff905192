package mr

import (
	"fmt"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/ib/driver"
)

// Reregister changes what mask names of a region: its memory and address, its protection domain, or its access rights;
// arguments that are not named are ignored. It returns the region that replaces r, with a new key, and revokes r as
// Deregister does, both in one step. (rdma_rxe cannot change the memory.) An invalidated region becomes valid again.
//
// Errors are those of Register and Deregister, and an *ib.AttrError for a mask that is empty or has unknown bits; r is
// then as before. It works with a full table, too, as r's own index becomes free.
func (t *Table) Reregister(r *Region, mask ib.ReregMask, pd *PD, m Memory, iova uint64, access ib.Access) (*Region,
	error) {
	return t.reregister(r, mask, pd, m, iova, access, false)
}

// ReregisterSameKey is Reregister, but the region that replaces r has r's key, at every moment: those who know it go
// on, with the rights that the new region gives. rdma_rxe does so, too.
func (t *Table) ReregisterSameKey(r *Region, mask ib.ReregMask, pd *PD, m Memory, iova uint64,
	access ib.Access) (*Region, error) {
	return t.reregister(r, mask, pd, m, iova, access, true)
}

func (t *Table) reregister(r *Region, mask ib.ReregMask, pd *PD, m Memory, iova uint64, access ib.Access,
	sameKey bool) (*Region, error) {
	const op, known = "re-register memory", ib.ReregTranslation | ib.ReregPD | ib.ReregAccess
	if mask == 0 || mask&^known != 0 {
		return nil, driver.Refuse(op, "mask", fmt.Sprintf("%#x", uint8(mask)),
			"one or more of ReregTranslation (1), ReregPD (2) and ReregAccess (4)", ib.ErrInvalid)
	}
	if mask&ib.ReregTranslation == 0 {
		m, iova = r.mem, r.iova
	}
	if mask&ib.ReregPD == 0 {
		pd = r.pd
	}
	if mask&ib.ReregAccess == 0 {
		access = r.access
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.removable(op, r); err != nil {
		return nil, err
	}
	if err := t.holds(pd); err != nil {
		return nil, err
	}
	next, err := newRegion(op, pd, m, iova, access)
	if err != nil {
		return nil, err
	}
	if sameKey {
		t.replace(r, next)
		return next, nil
	}
	t.remove(r)
	return next, t.add(op, next) // a free index exists: that of r
}

// replace gives r's key to next. The caller holds mu.
func (t *Table) replace(r, next *Region) {
	next.key = r.key
	t.guard(next)
	next.pd.users[UserRegion]++
	t.slot(r.key).region.Store(next) // before r dies, so that no lookup in between fails
	r.state.Or(regionDead)
	r.pd.users[UserRegion]--
}

package mr

import (
	"fmt"

	"github.com/goroce/goroce/ib"
)

// Reregister changes what mask names of a region: the memory and its address, the
// protection domain, the rights; the other arguments play no part. It returns the
// region that takes r's place, under a new key, and revokes r as Deregister does,
// in one step. (rdma_rxe cannot change the memory.) An invalidated region becomes
// valid so.
//
// Errors are those of Register and Deregister, and an *ib.AttrError for a mask
// that is empty or has unknown bits; r is then as it was. A full table is no
// obstacle: r's own place is free for its successor.
func (t *Table) Reregister(r *Region, mask ib.ReregMask, pd *PD, m Memory, iova uint64, access ib.Access) (*Region, error) {
	const op, known = "re-register memory", ib.ReregTranslation | ib.ReregPD | ib.ReregAccess
	if mask == 0 || mask&^known != 0 {
		return nil, ib.Refuse(op, "mask", fmt.Sprintf("%#x", uint8(mask)),
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
	t.remove(r)
	return next, t.add(op, next) // finds a free index: that of r
}

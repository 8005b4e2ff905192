//go:build rnic && cgo

package rnic

import (
	"sync"

	"github.com/goroce/goroce/ib"
)

// refs finds the objects that requests identify by number: address handles, regions and windows.
// Posting holds the lock for reading, so that these are not destroyed meanwhile; posts that bind
// hold it for writing, since they change a window's key.
//
// An object is removed before the library destroys it. Removing takes the lock for writing, so it waits for posts that
// have found the object, and no later one finds it. Most requests need no look-up: the library takes the keys of SGEs
// and of remote memory as they are, and the device checks them.
type refs struct {
	sync.RWMutex
	ahs     []*ah // by the low 24 bits of their numbers, less one
	freeAHs []int // indices of ahs that are nil
	ahCount uint32
	mrs     map[ib.Key]*mr
	mws     map[ib.Key]*mw // by key without its low 8 bits
}

// addAH assigns a number to an address handle. The high 8 bits change with each reuse, so that the
// number of a closed handle does not at once identify another one.
func (r *refs) addAH(a *ah) ib.AHNum {
	r.Lock()
	defer r.Unlock()
	if len(r.freeAHs) == 0 {
		r.freeAHs = append(r.freeAHs, len(r.ahs))
		r.ahs = append(r.ahs, nil)
	}
	last := len(r.freeAHs) - 1
	i := r.freeAHs[last]
	r.freeAHs = r.freeAHs[:last]
	r.ahs[i] = a
	// A count of all handles ever made: an index has the same number again after 256 of them at the earliest.
	r.ahCount++
	return ib.AHNum(r.ahCount<<24 | uint32(i+1))
}

// removeAH takes the number of a handle out of use. It may be called again, after a close that has failed.
func (r *refs) removeAH(a *ah) {
	r.Lock()
	defer r.Unlock()
	if r.ah(a.num) == a {
		i := int(a.num&0xFFFFFF) - 1
		r.ahs[i] = nil
		r.freeAHs = append(r.freeAHs, i)
	}
}

// ah returns the handle with that number, nil if there is none. The caller holds the lock.
func (r *refs) ah(num ib.AHNum) *ah {
	i := int(num&0xFFFFFF) - 1
	if i < 0 || i >= len(r.ahs) || r.ahs[i] == nil || r.ahs[i].num != num {
		return nil
	}
	return r.ahs[i]
}

// addMR makes requests find a region by its local key, unless the region is lost. Remote keys are looked up by the
// device only.
func (r *refs) addMR(m *mr) {
	r.Lock()
	defer r.Unlock()
	if m.lost != nil {
		return
	}
	if r.mrs == nil {
		r.mrs = map[ib.Key]*mr{}
	}
	m.key = m.lkey
	r.mrs[m.key] = m
}

// removeMR undoes addMR. A window may still have m as its last region: regionOf sees by key 0 that it is not usable.
func (r *refs) removeMR(m *mr) {
	r.Lock()
	defer r.Unlock()
	delete(r.mrs, m.key)
	m.key = 0
}

func (r *refs) addMW(w *mw) {
	r.Lock()
	defer r.Unlock()
	if r.mws == nil {
		r.mws = map[ib.Key]*mw{}
	}
	// The low byte of a window's key changes with each bind, the rest does not.
	r.mws[w.RKey()&^0xFF] = w
}

// removeMW undoes addMW. The window stays on the list of the QP that has bound it.
func (r *refs) removeMW(w *mw) {
	r.Lock()
	defer r.Unlock()
	delete(r.mws, w.RKey()&^0xFF)
}

package mr

import (
	"sync/atomic"

	"github.com/goroce/goroce/ib"
)

// Region is registered memory. All its methods may be called at any time, also
// after Deregister.
type Region struct {
	key    ib.Key
	pd     *PD
	mem    Memory
	direct direct // mem.Direct()
	iova   uint64
	length uint64
	access ib.Access
	dead   atomic.Bool

	revoked atomic.Bool // by Invalidate
}

// Key returns the region's L_Key, which is its R_Key too.
func (r *Region) Key() ib.Key { return r.key }

// Addr returns the address of the first byte, as SGEs and peers name it.
func (r *Region) Addr() uint64 { return r.iova }

// Len returns the length in bytes.
func (r *Region) Len() uint64 { return r.length }

// Access returns the rights that the region grants.
func (r *Region) Access() ib.Access { return r.access }

// PD returns the protection domain.
func (r *Region) PD() *PD { return r.pd }

// Direct reports whether the region's bytes are in this process, and written in
// the call rather than by a Placement.
func (r *Region) Direct() bool { return r.direct != nil }

// Valid reports whether the region is still registered, and not invalidated.
func (r *Region) Valid() bool { return !r.dead.Load() && !r.revoked.Load() }

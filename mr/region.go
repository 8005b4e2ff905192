package mr

import (
	"math"
	"sync/atomic"
	"unsafe"

	"github.com/goroce/goroce/ib"
)

// Region is registered memory, or the piece of a registered region that a memory
// window opens. All its methods may be called at any time, also after Deregister.
type Region struct {
	key    ib.Key
	pd     *PD
	mem    Memory
	direct direct // of mem.Direct(), what the region covers
	iova   uint64
	length uint64
	access ib.Access
	state  atomic.Uint32 // regionDead and the like; 0 is the common case

	windows int          // how many are bound to it; under Table.mu
	users   atomic.Int32 // accesses under way, if they are counted

	// Of a window's piece only.
	window *Window
	parent *Region
	base   uint64 // offset in mem of the first byte
	qpn    ib.QPN // type 2: whose peer may use it
}

// Bits of a region's state.
const (
	regionDead    = 1 << iota // by Deregister
	regionRevoked             // by Invalidate, or the end of a binding
	regionCounts              // accesses are counted: see guard.go
	regionFaulted             // by Table.Fault: an access to it never ended
)

// Key returns the region's L_Key, which is its R_Key too; of a window's piece, the
// R_Key of the binding.
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

// Valid reports whether the region is still registered and not invalidated, or the
// window still bound to this piece.
func (r *Region) Valid() bool { return r.state.Load()&(regionDead|regionRevoked) == 0 }

// offset returns where length bytes at address va begin in the region, if all of
// them are in it. No sum can wrap around.
func (r *Region) offset(va, length uint64) (off uint64, ok bool) {
	off = va - r.iova
	return off, va >= r.iova && off <= r.length && length <= r.length-off
}

// span returns the piece that an access asks for.
func (r *Region) span(va, length uint64) (Span, Fault) {
	off, ok := r.offset(va, length)
	if !ok || length > math.MaxUint32 {
		return Span{}, FaultBounds
	}
	return Span{R: r, Off: off, Len: uint32(length)}, FaultNone
}

// wordPhase returns the address of the first byte modulo 8, as whoever carries
// out atomics aligns them: the processor by its own addresses, a Memory that is
// not direct by those of the region. Peers align them by the address that they
// know, so for RemoteAtomic the two must agree modulo 8.
func (r *Region) wordPhase() uint64 {
	if len(r.direct) == 0 {
		return r.iova % 8
	}
	return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(r.direct)))) % 8
}

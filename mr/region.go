package mr

import (
	"math"
	"sync/atomic"
	"unsafe"

	"github.com/goroce/goroce/ib"
)

// Region is registered memory, or the part of a registered region that a memory window opens. Its methods may be called
// at any time, also after Deregister.
type Region struct {
	key    ib.Key
	pd     *PD
	mem    Memory
	direct direct // the part of mem.Direct() that the region covers
	iova   uint64
	length uint64
	access ib.Access
	state  atomic.Uint32 // bits below; 0 in the common case

	windows int          // number of windows bound to it; guarded by Table.mu
	users   atomic.Int32 // accesses under way, if regionCounts is set

	// Only if it is what a window opens:
	window *Window
	parent *Region
	base   uint64 // offset of the first byte in mem
	qpn    ib.QPN // type 2: the QP whose peer may use it
}

// Bits of a region's state.
const (
	regionDead    = 1 << iota // by Deregister
	regionRevoked             // by Invalidate, or the end of a binding
	regionCounts              // accesses are counted: see guard.go
	regionFaulted             // by Table.Fault: an access to it never ended
)

// Key returns the region's L_Key, which is also its R_Key; for what a window opens, the R_Key of the binding.
func (r *Region) Key() ib.Key { return r.key }

// Addr returns the address of the first byte, as SGEs and peers name it.
func (r *Region) Addr() uint64 { return r.iova }

// Len returns the length in bytes.
func (r *Region) Len() uint64 { return r.length }

// Access returns the rights that the region grants.
func (r *Region) Access() ib.Access { return r.access }

// PD returns the protection domain.
func (r *Region) PD() *PD { return r.pd }

// Direct reports whether the region's bytes are in this process, so that they are written by the call and not by a
// Placement.
func (r *Region) Direct() bool { return r.direct != nil }

// Valid reports whether the region is still registered and not invalidated; for what a window opens, whether the window
// is still bound to it.
func (r *Region) Valid() bool { return r.state.Load()&(regionDead|regionRevoked) == 0 }

// offset returns the offset of address va in the region. ok is false if the length bytes are not all in the region. No
// sum can overflow.
func (r *Region) offset(va, length uint64) (off uint64, ok bool) {
	off = va - r.iova
	return off, va >= r.iova && off <= r.length && length <= r.length-off
}

// span returns the bytes of an access as a Span.
func (r *Region) span(va, length uint64) (Span, Fault) {
	off, ok := r.offset(va, length)
	if !ok || length > math.MaxUint32 {
		return Span{}, FaultBounds
	}
	return Span{R: r, Off: off, Len: uint32(length)}, FaultNone
}

// wordPhase returns the address of the first byte modulo 8, as the one who executes atomics sees it: the processor uses
// addresses of this process, a Memory that is not direct uses those of the region. Peers align atomics by the region's
// addresses, so with RemoteAtomic both must agree modulo 8.
func (r *Region) wordPhase() uint64 {
	if len(r.direct) == 0 {
		return r.iova % 8
	}
	return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(r.direct)))) % 8
}

package qp

import (
	"math/bits"
	"unsafe"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/mr"
)

// What a QP takes of the heap, beside its rings, for owners that book what others make them
// hold. It is made at creation, unless it says otherwise.

// HeapBytes is what a QP with these capabilities takes.
func HeapBytes(c *ib.QPCap) int64 {
	entries := 0
	if c.MaxSendWR > 0 {
		entries = 1 << bits.Len(uint(c.MaxSendWR-1)) // as the ring has
	}
	entry := int(unsafe.Sizeof(sendWQE{})) + c.MaxSendSGE*int(unsafe.Sizeof(ib.SGE{})+unsafe.Sizeof(mr.Span{})) +
		c.MaxInline
	receive := c.MaxRecvSGE * int(unsafe.Sizeof(ib.SGE{})+unsafe.Sizeof(mr.Span{}))
	return int64(int(unsafe.Sizeof(QP{})) + entries*entry + receive)
}

// RdAtomicBytes is what it takes for READs and atomics: so many of its own, and of the peer's.
// Modify makes it.
func RdAtomicBytes(initiator, responder int) int64 {
	if responder > 0 {
		responder = 1 << bits.Len(uint(responder-1))
	}
	return int64(initiator*int(unsafe.Sizeof(readReq{})) + responder*int(unsafe.Sizeof(resource{})))
}

// LateBytes is what it takes when it first meets memory that is not direct, and keeps: what
// waits for placements, up to maxLate of them, and the staging memory of both directions.
func LateBytes(maxLate int) int64 {
	waits := 1<<bits.Len(uint(max(maxLate, 1)-1))*int(unsafe.Sizeof(commit{})) +
		maxLate*int(unsafe.Sizeof(mr.Placement{})+unsafe.Sizeof(lateOwner{}))
	return int64(waits + int(unsafe.Sizeof(fetchTable{})) + int(numDirections)*numChunks*chunkBytes)
}

package qp

import (
	"math/bits"
	"unsafe"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/mr"
)

// These functions return the heap bytes of a QP without its rings, for owners that limit how
// much memory their clients use. The memory is allocated at creation, unless stated otherwise.

// HeapBytes returns the bytes of a QP with these capabilities.
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

// RdAtomicBytes returns the bytes that Modify allocates for READs and atomics in flight: as many
// as initiator of the QP's own, and as responder of the peer's.
func RdAtomicBytes(initiator, responder int) int64 {
	if responder > 0 {
		responder = 1 << bits.Len(uint(responder-1))
	}
	return int64(initiator*int(unsafe.Sizeof(readReq{})) + responder*int(unsafe.Sizeof(resource{})))
}

// LateBytes returns the bytes that a QP allocates, and keeps, when it first uses memory that is
// not direct: the queues for up to maxLate placements, and the staging memory of both directions.
func LateBytes(maxLate int) int64 { return lateBytes(maxLate, numChunks*chunkBytes) }

// LeastLateBytes is LateBytes for a QP that may not have as much (Limits.Stage).
func LeastLateBytes() int64 { return lateBytes(leastLate, leastChunk) }

func lateBytes(maxLate, chunks int) int64 {
	waits := 1<<bits.Len(uint(max(maxLate, 1)-1))*int(unsafe.Sizeof(commit{})) +
		maxLate*int(unsafe.Sizeof(mr.Placement{})+unsafe.Sizeof(lateOwner{}))
	return int64(waits + int(unsafe.Sizeof(fetchTable{})) + int(numDirections)*chunks)
}

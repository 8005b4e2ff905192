package roce

import (
	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/qp"
)

// What tenants' QPs take of this process's heap, for who books it. Their rings, which tenants
// share, are not in it.

// QPHeap is what a QP with these capabilities takes from its creation on, in bytes.
// Those that CreateQP would refuse count as the most that it allows.
func QPHeap(c *ib.QPCap) int64 {
	return qpObjects + qp.HeapBytes(&ib.QPCap{MaxSendWR: min(c.MaxSendWR, maxQPWR),
		MaxRecvWR:  min(c.MaxRecvWR, maxQPWR),
		MaxSendSGE: max(min(c.MaxSendSGE, maxSGE), 1), MaxRecvSGE: max(min(c.MaxRecvSGE, maxSGE), 1),
		MaxInline: min(c.MaxInline, maxInline)})
}

// qpObjects is what a QP takes beside that of package qp: the objects of this package and of
// the engine, and its places in tables.
const qpObjects = 2048

// QPHeapRdAtomic is what it takes more for so many outstanding READs and atomics of its own,
// and of the peer's.
func QPHeapRdAtomic(initiator, responder int) int64 {
	return qp.RdAtomicBytes(min(initiator, maxRdAtomic), min(responder, maxRdAtomic))
}

// QPHeapLate is what it takes more once it meets memory that is not direct.
func QPHeapLate() int64 { return qp.LateBytes(maxLate) }

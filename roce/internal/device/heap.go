package device

import (
	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/qp"
	"github.com/goroce/goroce/roce/internal/engine"
)

// The memory that tenants' QPs use on this process's heap, for package server, which accounts for
// it. It does not include the rings, which are in memory that the tenants share.

// QPHeap returns the bytes that a QP with these capabilities uses from its creation on.
// Capabilities above the limits of CreateQP count as these limits.
func QPHeap(c *ib.QPCap) int64 {
	return qpObjects + qp.HeapBytes(&ib.QPCap{MaxSendWR: min(c.MaxSendWR, maxQPWR),
		MaxRecvWR:  min(c.MaxRecvWR, maxQPWR),
		MaxSendSGE: max(min(c.MaxSendSGE, maxSGE), 1), MaxRecvSGE: max(min(c.MaxRecvSGE, maxSGE), 1),
		MaxInline: min(c.MaxInline, maxInline)})
}

// qpObjects is what a QP uses besides the memory of package qp: objects of this package and of
// the engine, and entries in tables.
const qpObjects = 2048

// QPHeapRdAtomic returns the additional bytes for the given numbers of outstanding READs and
// atomics, as initiator and as responder.
func QPHeapRdAtomic(initiator, responder int) int64 {
	return qp.RdAtomicBytes(min(initiator, maxRdAtomic), min(responder, maxRdAtomic))
}

// QPHeapLate returns the additional bytes once a QP accesses memory that is not direct, if Tenant.Stage allows it.
func QPHeapLate() int64 { return qp.LateBytes(maxLate) }

// QPHeapLeastLate is QPHeapLate if Tenant.Stage does not.
func QPHeapLeastLate() int64 { return qp.LeastLateBytes() }

// stage asks a QP's tenant, if it has one, for QPHeapLate (qp.Limits.Stage).
func stage(core *qp.QP) bool {
	q := core.Owner.(*engine.QP).Owner.(*QP)
	return q.pd.tenant == nil || q.pd.tenant.Stage(q)
}

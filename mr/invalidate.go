package mr

import "github.com/goroce/goroce/ib"

// Invalidate revokes a key for QP qpn, a user of pd: for a LOCAL INVALIDATE
// request of its own, or the peer's SEND with invalidate. The rules are the same
// for both (IBTA 10.6.5.2, 10.6.7.2):
//   - a window of type 2 must be bound to qpn, FaultQP otherwise. It is free then,
//     to be bound again with another variant. Type 1 answers FaultAccess.
//   - a region must have ib.RemoteInvalidate, FaultAccess otherwise, and no windows
//     bound to it, FaultState otherwise. It stays in the table, without use, until
//     Deregister or Reregister. (The C verbs know this only for the kernel's
//     fast-registered regions; rdma_rxe refuses all others.)
//
// FaultKey and FaultPD are as in Check. What has looked at the key already fails
// when it comes to the memory; in a shared table, an access that is in the middle
// of it is waited for.
func (t *Table) Invalidate(pd *PD, qpn ib.QPN, key ib.Key) Fault {
	t.mu.Lock()
	defer t.mu.Unlock()
	r := t.lookup(key)
	switch {
	case r == nil:
		return FaultKey
	case r.pd != pd:
		return FaultPD
	case r.window != nil:
		return t.invalidateWindow(r, qpn)
	case r.access&ib.RemoteInvalidate == 0:
		return FaultAccess
	case r.windows > 0:
		return FaultState
	}
	r.revoke()
	return FaultNone
}

// invalidateWindow frees the window that opens r.
func (t *Table) invalidateWindow(r *Region, qpn ib.QPN) Fault {
	switch {
	case r.window.typ == ib.MWType1:
		return FaultAccess
	case r.qpn != qpn:
		return FaultQP
	}
	t.unbind(r.window)
	return FaultNone
}

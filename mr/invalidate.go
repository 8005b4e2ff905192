package mr

import "github.com/goroce/goroce/ib"

// Invalidate revokes a key for a LOCAL INVALIDATE on QP qpn, a user of pd. Rules (IBTA 10.6.5.2, 10.6.7.2):
//   - a window of type 2 must be bound to qpn, otherwise FaultQP. It becomes free, and may be bound again with
//     another variant. A window of type 1 is FaultAccess.
//   - a region must have ib.RemoteInvalidate, otherwise FaultAccess, and no windows may be bound to it, otherwise
//     FaultState. It stays in the table, unusable, until Deregister or Reregister. (The C verbs allow this only for
//     regions of the kernel's fast registration; rdma_rxe refuses all others.)
//
// FaultKey and FaultPD are as in Check. An access that has been checked but has not reached the memory yet fails. In a
// shared table, Invalidate waits for accesses that are touching the memory.
func (t *Table) Invalidate(pd *PD, qpn ib.QPN, key ib.Key) Fault {
	return t.invalidate(pd, qpn, key, ib.KeyInvalidated)
}

// InvalidateByPeer is Invalidate for a SEND with invalidate of the QP's peer. The rules are the same.
func (t *Table) InvalidateByPeer(pd *PD, qpn ib.QPN, key ib.Key) Fault {
	return t.invalidate(pd, qpn, key, ib.KeyInvalidatedByPeer)
}

func (t *Table) invalidate(pd *PD, qpn ib.QPN, key ib.Key, how ib.KeyEnd) Fault {
	t.mu.Lock()
	defer t.mu.Unlock()
	r := t.lookup(key)
	switch {
	case r == nil:
		return FaultKey
	case r.pd != pd:
		return FaultPD
	case r.window != nil:
		if fault := t.invalidateWindow(r, qpn); fault != FaultNone {
			return fault
		}
		t.end(key, how, qpn)
		return FaultNone
	case r.access&ib.RemoteInvalidate == 0:
		return FaultAccess
	case r.windows > 0:
		return FaultState
	}
	r.revoke()
	t.end(key, how, qpn)
	return FaultNone
}

// invalidateWindow unbinds the window that r is the bound part of.
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

package mr

import "github.com/goroce/goroce/ib"

// Invalidate revokes a key on behalf of a user of pd: the peer's SEND with
// invalidate. The region must have been registered with ib.RemoteInvalidate;
// others answer FaultAccess. It stays in the table, without use, until
// Deregister (IBTA 10.6.5.2: the region goes to the free state).
func (t *Table) Invalidate(pd *PD, key ib.Key) Fault {
	r := t.lookup(key)
	switch {
	case r == nil:
		return FaultKey
	case r.pd != pd:
		return FaultPD
	case r.access&ib.RemoteInvalidate == 0:
		return FaultAccess
	}
	r.revoked.Store(true)
	return FaultNone
}

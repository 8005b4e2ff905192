package mr

import "github.com/goroce/goroce/ib"

// ended is the key that was the last to leave a slot.
type ended struct {
	key ib.Key
	how ib.KeyEnd // 0 if none has left it
	by  ib.QPN    // whose request, or whose peer's, ended it
	at  ib.Instant
}

// SetClock gives the table a clock, by which Explain knows how long ago a key has ended. It is called before the table
// is used.
func (t *Table) SetClock(now func() ib.Instant) { t.now = now }

// end notes that a key has ended. The caller holds mu.
func (t *Table) end(key ib.Key, how ib.KeyEnd, by ib.QPN) {
	e := ended{key: key, how: how, by: by}
	if t.now != nil {
		e.at = t.now()
	}
	t.slot(key).ended = e
}

var reasons = [...]ib.Reason{FaultKey: ib.ReasonKey, FaultPD: ib.ReasonPD, FaultQP: ib.ReasonWindowQP,
	FaultAccess: ib.ReasonAccess, FaultBounds: ib.ReasonBounds, FaultBind: ib.ReasonBind, FaultState: ib.ReasonBind}

// Explain says in detail why Check, CheckRemote or Bind has just refused an access to length bytes at va. It looks at
// the table again, so it may find that another goroutine has changed it since.
func (t *Table) Explain(f Fault, key ib.Key, va, length uint64, need ib.Access) ib.Cause {
	c := ib.Cause{Reason: reasons[f], Key: key, Addr: va, Length: length, Need: need}
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.slot(key)
	if r := s.region.Load(); r != nil && r.key == key {
		c.Start, c.Size, c.Have, c.By = r.iova, r.length, r.access, r.qpn
	}
	if e := s.ended; f == FaultKey && e.how != 0 && e.key == key {
		c.Reason, c.Ended, c.By = ib.ReasonKeyEnded, e.how, e.by
		if t.now != nil {
			c.Since = t.now() - e.at
		}
	}
	return c
}

// ExplainBind is Explain for a bind of the window with a key.
func (t *Table) ExplainBind(f Fault, key ib.Key, b ib.MWBind) ib.Cause {
	if w := t.slot(key).window; f == FaultBind || f == FaultState || f == FaultKey && w == nil {
		return t.Explain(f, key, b.Addr, b.Length, b.Access)
	}
	return t.Explain(f, b.LKey, b.Addr, b.Length, b.Access)
}

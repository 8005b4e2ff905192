package mr

import (
	"errors"
	"testing"

	"github.com/goroce/goroce/ib"
)

// A QP, or its peer, revokes only what is meant for that, in its own domain, and
// of the windows only its own.
func TestInvalidateRules(t *testing.T) {
	const qpn, otherQPN = 17, 18
	table, pd := newTable(t, 8)
	otherPD, _ := table.NewPD()
	m := Bytes(make([]byte, 8))
	r := register(t, table, pd, m, 0, ib.RemoteInvalidate)
	keep := register(t, table, pd, m, 0, ib.BindWindows)
	under := register(t, table, pd, m, 0, ib.BindWindows|ib.RemoteInvalidate)
	w1, w2 := newWindow(t, table, pd, ib.MWType1), newWindow(t, table, pd, ib.MWType2)
	unbound := newWindow(t, table, pd, ib.MWType2)
	bind(t, table, w1, qpn, all(keep, 0))
	bind(t, table, w2, qpn, all(under, 0))
	for _, c := range []struct {
		name string
		pd   *PD
		qpn  ib.QPN
		key  ib.Key
		want Fault
	}{
		{"unknown key", pd, qpn, 0xBAD, FaultKey},
		{"key 0", pd, qpn, 0, FaultKey},
		{"region, wrong variant", pd, qpn, r.Key() ^ 1, FaultKey},
		{"region, other domain", otherPD, qpn, r.Key(), FaultPD},
		{"region not registered for it", pd, qpn, keep.Key(), FaultAccess},
		{"region with a window", pd, qpn, under.Key(), FaultState},
		{"region", pd, qpn, r.Key(), FaultNone},
		{"region, twice", pd, qpn, r.Key(), FaultKey},
		{"type 1", pd, qpn, w1.Key(), FaultAccess},
		{"type 2, wrong variant", pd, qpn, w2.Key() ^ 1, FaultKey},
		{"type 2, other domain", otherPD, qpn, w2.Key(), FaultPD},
		{"type 2, other QP", pd, otherQPN, w2.Key(), FaultQP},
		{"type 2", pd, qpn, w2.Key(), FaultNone},
		{"type 2, twice", pd, qpn, w2.Key(), FaultKey},
		{"type 2, never bound", pd, qpn, unbound.Key(), FaultKey},
		{"region whose window is gone", pd, qpn, under.Key(), FaultNone},
	} {
		if fault := table.Invalidate(c.pd, c.qpn, c.key); fault != c.want {
			t.Errorf("%s: %v, want %v", c.name, fault, c.want)
		}
	}
	if !keep.Valid() || w1.bound == nil {
		t.Error("what was refused is gone all the same")
	}
}

// An invalidated region is as good as gone, until it is deregistered.
func TestInvalidatedRegion(t *testing.T) {
	table, pd := newTable(t, 2)
	r := register(t, table, pd, Bytes(make([]byte, 8)), 0, ib.RemoteInvalidate|ib.BindWindows)
	if fault := table.Invalidate(pd, 0, r.Key()); fault != FaultNone {
		t.Fatal(fault)
	}
	if _, fault := table.Check(pd, r.Key(), 0, 1, 0); fault != FaultKey {
		t.Errorf("lookup: got %v, want %v", fault, FaultKey)
	}
	if err := Gather(make([]byte, 8), SGL{{r, 0, 8}}, 0); r.Valid() || !errors.Is(err, FaultKey) {
		t.Errorf("read: %v, valid %v; want %v, false", err, r.Valid(), FaultKey)
	}
	w := newWindow(t, table, pd, ib.MWType1)
	if fault := table.Bind(pd, 0, ib.NextKey(w.Key()), all(r, 0)); fault != FaultKey {
		t.Errorf("bind: got %v, want %v", fault, FaultKey)
	}
	if err := table.Deregister(r); err != nil {
		t.Errorf("deregister: %v", err)
	}
}

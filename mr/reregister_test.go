package mr

import (
	"errors"
	"strings"
	"testing"

	"github.com/goroce/goroce/ib"
)

// What the mask names changes, and nothing else.
func TestReregister(t *testing.T) {
	const tr, dom, acc = ib.ReregTranslation, ib.ReregPD, ib.ReregAccess
	for mask := tr; mask <= tr|dom|acc; mask++ {
		table, pd := newTable(t, 4)
		newPD, _ := table.NewPD()
		oldMem, newMem := Bytes(aligned(16, 0)), Bytes(aligned(32, 0))
		r := register(t, table, pd, oldMem, 0x100, ib.RemoteRead)
		stale, _ := table.Check(pd, r.Key(), 0x100, 8, 0)

		next, err := table.Reregister(r, mask, newPD, newMem, 0x200, allRights)
		if err != nil {
			t.Fatalf("mask %d: %v", mask, err)
		}
		wantPD, wantMem, wantIOVA, wantAccess := pd, oldMem, uint64(0x100), ib.RemoteRead
		if mask&tr != 0 {
			wantMem, wantIOVA = newMem, 0x200
		}
		if mask&dom != 0 {
			wantPD = newPD
		}
		if mask&acc != 0 {
			wantAccess = allRights
		}
		if next.PD() != wantPD || next.Addr() != wantIOVA || next.Len() != wantMem.Len() ||
			next.Access() != wantAccess {
			t.Errorf("mask %d: region %+v;\nwant PD %p, %d bytes at %#x, access %v", mask, next, wantPD, wantMem.Len(),
				wantIOVA, wantAccess)
		}
		if pd.users[UserRegion]+newPD.users[UserRegion] != 1 || wantPD.users[UserRegion] != 1 {
			t.Errorf("mask %d: the domains count %d and %d regions, want 1 in the one asked for", mask,
				pd.users[UserRegion], newPD.users[UserRegion])
		}
		if next.Key()>>8 == r.Key()>>8 {
			t.Errorf("mask %d: key %#x after %#x, want another index", mask, uint32(next.Key()), uint32(r.Key()))
		}
		if _, fault := table.Check(pd, r.Key(), 0x100, 8, 0); fault != FaultKey || r.Valid() {
			t.Errorf("mask %d: the old key opens: %v, want %v", mask, fault, FaultKey)
		}
		if err := stale.Read(make([]byte, 8)); err != FaultKey {
			t.Errorf("mask %d: old span: got %v, want %v", mask, err, FaultKey)
		}
		s, fault := table.Check(wantPD, next.Key(), wantIOVA, wantMem.Len(), wantAccess)
		if fault != FaultNone || s.Write([]byte{42}) != nil || wantMem.Direct()[0] != 42 {
			t.Errorf("mask %d: new key: %v, want it to write", mask, fault)
		}
		if err := table.Deregister(next); err != nil {
			t.Error(err)
		}
	}
}

// A region that keeps its key is replaced under it: what was checked before is revoked, later checks use the new
// rights, and the numbers of keys and regions do not change.
func TestReregisterSameKey(t *testing.T) {
	table, pd := newTable(t, 4)
	newPD, _ := table.NewPD()
	oldMem, newMem := Bytes(aligned(16, 0)), Bytes(aligned(32, 0))
	r := register(t, table, pd, oldMem, 0x100, ib.LocalWrite|ib.RemoteWrite)
	key, used := r.Key(), table.used
	stale, _ := table.Check(pd, key, 0x100, 8, 0)
	next, err := table.ReregisterSameKey(r, ib.ReregTranslation|ib.ReregPD|ib.ReregAccess, newPD, newMem, 0x200,
		ib.LocalWrite|ib.RemoteRead)
	if err != nil || next.Key() != key || r.Valid() || table.used != used {
		t.Fatalf("key %#x, %d keys: %v; want %#x, %d", uint32(next.Key()), table.used, err, uint32(key), used)
	}
	if err := stale.Write(make([]byte, 8)); err != FaultKey {
		t.Errorf("old span: got %v, want %v", err, FaultKey)
	}
	for _, c := range []struct {
		pd   *PD
		at   uint64
		need ib.Access
		want Fault
	}{
		{newPD, 0x200, ib.RemoteRead, FaultNone}, {newPD, 0x200, ib.RemoteWrite, FaultAccess},
		{pd, 0x200, ib.RemoteRead, FaultPD}, {newPD, 0x100, ib.RemoteRead, FaultBounds},
	} {
		if _, fault := table.CheckRemote(c.pd, 17, key, c.at, 32, c.need); fault != c.want {
			t.Errorf("%#x with rights %#x: %v, want %v", c.at, c.need, fault, c.want)
		}
	}
	if pd.users[UserRegion] != 0 || newPD.users[UserRegion] != 1 {
		t.Errorf("the domains count %d and %d regions, want none and 1", pd.users[UserRegion], newPD.users[UserRegion])
	}
	_, err = table.ReregisterSameKey(next, ib.ReregAccess, nil, nil, 0, ib.RemoteWrite)
	if !errors.Is(err, ib.ErrInvalid) || !next.Valid() {
		t.Errorf("rights that cannot be: %v; valid %v; want %v, true", err, next.Valid(), ib.ErrInvalid)
	}
	if err := table.Deregister(r); !errors.Is(err, ib.ErrClosed) {
		t.Errorf("deregister what was replaced: got %v, want %v", err, ib.ErrClosed)
	}
	if err := table.Deregister(next); err != nil || table.used != used-1 || table.lookup(key) != nil {
		t.Errorf("deregister: %v, %d keys left; want %d", err, table.used, used-1)
	}
}

// Hints in the rights of a region have no effect.
func TestOptionalAccess(t *testing.T) {
	table, pd := newTable(t, 2)
	if r := register(t, table, pd, sized(8), 0, ib.LocalWrite|1<<20|1<<29); r.Access() != ib.LocalWrite {
		t.Errorf("rights %#x, want %#x", uint32(r.Access()), uint32(ib.LocalWrite))
	}
	for _, bit := range []ib.Access{1 << 19, 1 << 30} {
		if _, err := table.Register(pd, sized(8), 0, bit); !errors.Is(err, ib.ErrInvalid) {
			t.Errorf("rights %#x: got %v, want %v", uint32(bit), err, ib.ErrInvalid)
		}
	}
}

// A refused change leaves the region as it was.
func TestReregisterRefuses(t *testing.T) {
	table, pd := newTable(t, 8)
	strangers := NewTable(8, CountedKeys(counter()))
	strangePD, _ := strangers.NewPD()
	strange := register(t, strangers, strangePD, sized(8), 0, 0)
	freedPD, _ := table.NewPD()
	if err := table.FreePD(freedPD); err != nil {
		t.Fatal(err)
	}
	r := register(t, table, pd, sized(8), 4, 0)
	busy := register(t, table, pd, sized(8), 0, ib.BindWindows)
	w := newWindow(t, table, pd, ib.MWType1)
	bind(t, table, w, 17, all(busy, 0))
	closed := register(t, table, pd, sized(8), 0, 0)
	if err := table.Deregister(closed); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name   string
		r      *Region
		mask   ib.ReregMask
		pd     *PD
		m      Memory
		iova   uint64
		access ib.Access
		want   error
		text   string
	}{
		{"empty mask", r, 0, pd, sized(8), 0, 0, ib.ErrInvalid, "mask is 0x0"},
		{"unknown bit", r, 9, pd, sized(8), 0, 0, ib.ErrInvalid, "mask is 0x9"},
		{"write without local write", r, ib.ReregAccess, pd, nil, 0, ib.RemoteWrite, ib.ErrInvalid,
			"re-register memory: Access is 0x2"},
		{"zero based, with the old address", r, ib.ReregAccess, pd, nil, 0, ib.ZeroBased, ib.ErrInvalid, "IOVA is 0x4"},
		{"persistent, in memory that is not", r, ib.ReregAccess, pd, nil, 0, ib.FlushPersistent, ib.ErrNotSupported,
			"Access"},
		{"addresses wrap", r, ib.ReregTranslation, pd, sized(8), 1<<64 - 7, 0, ib.ErrInvalid, "IOVA"},
		{"too long", r, ib.ReregTranslation, pd, sized(MaxLen + 1), 0, 0, ib.ErrInvalid, "length"},
		{"freed domain", r, ib.ReregPD, freedPD, nil, 0, 0, ib.ErrClosed, "protection domain"},
		{"another table's domain", r, ib.ReregPD, strangePD, nil, 0, 0, ib.ErrForeign, "protection domain"},
		{"no domain", r, ib.ReregPD, nil, nil, 0, 0, ib.ErrInvalid, "PD"},
		{"another table's region", strange, ib.ReregAccess, nil, nil, 0, 0, ib.ErrForeign, "re-register"},
		{"closed", closed, ib.ReregAccess, nil, nil, 0, 0, ib.ErrClosed, "re-register"},
		{"window bound", busy, ib.ReregAccess, nil, nil, 0, 0, ib.ErrBusy, "1 bound memory windows"},
		{"a window's piece", w.bound, ib.ReregAccess, nil, nil, 0, 0, ib.ErrInvalid, "a memory window's"},
	} {
		next, err := table.Reregister(c.r, c.mask, c.pd, c.m, c.iova, c.access)
		if !errors.Is(err, c.want) || next != nil || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%s: %v, want %v that says %q", c.name, err, c.want, c.text)
		}
	}
	for _, r := range []*Region{r, busy, w.bound} {
		if _, fault := table.CheckRemote(pd, 17, r.Key(), r.Addr(), 8, 0); fault != FaultNone {
			t.Errorf("key %#x afterwards: got %v, want none", uint32(r.Key()), fault)
		}
	}
	if pd.users[UserRegion] != 2 {
		t.Errorf("the domain counts %d regions, want 2", pd.users[UserRegion])
	}
}

// A full table can still re-register, many times over, and never repeats a key
// at once.
func TestReregisterInFullTable(t *testing.T) {
	table := NewTable(2, CountedKeys(func() uint8 { return 7 }))
	pd, _ := table.NewPD()
	register(t, table, pd, sized(8), 0, 0)
	r := register(t, table, pd, sized(8), 0, ib.RemoteInvalidate)
	for range 300 {
		next, err := table.Reregister(r, ib.ReregAccess, nil, nil, 0, ib.RemoteInvalidate)
		if err != nil {
			t.Fatal(err)
		}
		if next.Key() == r.Key() {
			t.Fatalf("key %#x again, want another", uint32(r.Key()))
		}
		r = next
	}
	if _, err := table.Register(pd, sized(8), 0, 0); !errors.Is(err, ib.ErrLimit) {
		t.Errorf("third region of two: got %v, want %v", err, ib.ErrLimit)
	}
	if fault := table.Invalidate(pd, 0, r.Key()); fault != FaultNone {
		t.Fatal(fault)
	}
	r, err := table.Reregister(r, ib.ReregAccess, nil, nil, 0, 0)
	if err != nil || !r.Valid() {
		t.Errorf("an invalidated region: %v; want it valid", err)
	}
}

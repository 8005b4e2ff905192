package mr

import (
	"fmt"
	"testing"

	"github.com/goroce/goroce/ib"
)

// bindCall is one call of Bind, and the region that it names.
type bindCall struct {
	table *Table
	pd    *PD
	other *PD
	r     *Region
	w     *Window
	key   ib.Key
	b     ib.MWBind
}

// region registers another region in place of c.r.
func (c *bindCall) region(access ib.Access) {
	r, err := c.table.Register(c.pd, &durable{Memory: Bytes(aligned(64, 0))}, 0x1000, access)
	if err != nil {
		panic(err)
	}
	c.r, c.b.LKey = r, r.Key()
}

func withRegion(access, window ib.Access) func(*bindCall) {
	return func(c *bindCall) { c.region(access); c.b.Access = window }
}

func withPiece(addr, length uint64) func(*bindCall) {
	return func(c *bindCall) { c.b.Addr, c.b.Length = addr, length }
}

func withRights(window ib.Access) func(*bindCall) { return func(c *bindCall) { c.b.Access = window } }

// bindRules has what differs from a good bind, of 64 bytes at 0x1000, and the fault
// for windows of type 1 and 2.
var bindRules = []struct {
	name   string
	change func(*bindCall)
	want   [2]Fault
}{
	{"good", func(*bindCall) {}, [2]Fault{}},
	{"first byte", withPiece(0x1000, 1), [2]Fault{}},
	{"last byte", withPiece(0x103F, 1), [2]Fault{}},

	{"no window of this key", func(c *bindCall) { c.key = 6 << 8 }, [2]Fault{FaultKey, FaultKey}},
	{"key 0", func(c *bindCall) { c.key = 0 }, [2]Fault{FaultKey, FaultKey}},
	{"index beyond the table", func(c *bindCall) { c.key = 1<<32 - 1 }, [2]Fault{FaultKey, FaultKey}},
	{"a region's key for the window", func(c *bindCall) { c.key = ib.NextKey(c.r.Key()) },
		[2]Fault{FaultKey, FaultKey}},
	{"window of another domain", func(c *bindCall) { c.pd = c.other }, [2]Fault{FaultPD, FaultPD}},
	{"present variant", func(c *bindCall) { c.key = c.w.Key() }, [2]Fault{FaultBind, FaultBind}},
	{"any other variant", func(c *bindCall) { c.key = c.w.Key() ^ 0x80 }, [2]Fault{}},

	{"nothing", withPiece(0x1000, 0), [2]Fault{FaultNone, FaultBind}},
	{"nothing, of no region", func(c *bindCall) { c.b = ib.MWBind{LKey: 0xBAD, Access: 1 << 20} },
		[2]Fault{FaultNone, FaultBind}},
	{"unknown L_Key", func(c *bindCall) { c.b.LKey = 0xBAD }, [2]Fault{FaultKey, FaultKey}},
	{"L_Key of the wrong variant", func(c *bindCall) { c.b.LKey ^= 1 }, [2]Fault{FaultKey, FaultKey}},
	{"L_Key of the window", func(c *bindCall) { c.b.LKey = c.w.Key() }, [2]Fault{FaultKey, FaultKey}},
	{"L_Key of a bound window", func(c *bindCall) {
		w, _ := c.table.AllocWindow(c.pd, ib.MWType1)
		c.region(ib.BindWindows)
		c.table.Bind(c.pd, 17, ib.NextKey(w.Key()), all(c.r, 0))
		c.region(ib.BindWindows)
		c.b.LKey = w.Key()
	}, [2]Fault{FaultKey, FaultKey}},
	{"region gone", func(c *bindCall) { c.table.Deregister(c.r) }, [2]Fault{FaultKey, FaultKey}},
	{"region invalidated", func(c *bindCall) {
		c.region(ib.BindWindows | ib.RemoteInvalidate)
		c.table.Invalidate(c.pd, 0, c.r.Key())
	}, [2]Fault{FaultKey, FaultKey}},
	{"region of another domain", func(c *bindCall) { pd := c.pd; c.pd = c.other; c.region(ib.BindWindows); c.pd = pd },
		[2]Fault{FaultPD, FaultPD}},

	{"no rights", withRegion(ib.BindWindows, 0), [2]Fault{}},
	{"read, of a region that peers cannot read", withRegion(ib.BindWindows, ib.RemoteRead), [2]Fault{}},
	{"write, likewise", withRegion(ib.BindWindows|ib.LocalWrite, ib.RemoteWrite), [2]Fault{}},
	{"atomics, likewise", withRegion(ib.BindWindows|ib.LocalWrite, ib.RemoteAtomic), [2]Fault{}},
	{"region without BindWindows", withRegion(allRights, 0), [2]Fault{FaultAccess, FaultAccess}},
	{"write without local write", withRegion(ib.BindWindows|ib.RemoteRead, ib.RemoteWrite),
		[2]Fault{FaultAccess, FaultAccess}},
	{"atomics without local write", withRegion(ib.BindWindows|ib.RemoteRead, ib.RemoteAtomic),
		[2]Fault{FaultAccess, FaultAccess}},
	{"flush", withRegion(ib.BindWindows|ib.FlushGlobal|ib.FlushPersistent, ib.FlushGlobal|ib.FlushPersistent),
		[2]Fault{}},
	{"flush, not of the region", withRegion(ib.BindWindows|ib.FlushPersistent, ib.FlushGlobal),
		[2]Fault{FaultAccess, FaultAccess}},
	{"persistence, not of the region", withRegion(ib.BindWindows|ib.FlushGlobal, ib.FlushPersistent),
		[2]Fault{FaultAccess, FaultAccess}},
	{"local write for peers", withRights(ib.LocalWrite), [2]Fault{FaultBind, FaultBind}},
	{"windows on the window", withRights(ib.BindWindows), [2]Fault{FaultBind, FaultBind}},
	{"invalidation as a right", withRights(ib.RemoteInvalidate), [2]Fault{FaultBind, FaultBind}},
	{"unknown right", withRights(1 << 20), [2]Fault{FaultBind, FaultBind}},
	{"zero-based window", withRights(ib.ZeroBased), [2]Fault{FaultBind, FaultNone}},
	{"zero-based region", func(c *bindCall) {
		r, _ := c.table.Register(c.pd, sized(8), 0, ib.BindWindows|ib.ZeroBased)
		c.b = all(r, 0)
	}, [2]Fault{FaultBind, FaultBind}},

	{"a byte too many", withPiece(0x1000, 65), [2]Fault{FaultBounds, FaultBounds}},
	{"a byte early", withPiece(0x0FFF, 2), [2]Fault{FaultBounds, FaultBounds}},
	{"a byte late", withPiece(0x1040, 1), [2]Fault{FaultBounds, FaultBounds}},
	{"address 0", withPiece(0, 1), [2]Fault{FaultBounds, FaultBounds}},
	{"length 2^64-1", withPiece(0x1000, 1<<64-1), [2]Fault{FaultBounds, FaultBounds}},
	{"end wraps into the region", withPiece(0x1008, 1<<64-4), [2]Fault{FaultBounds, FaultBounds}},
	{"address near 2^64", withPiece(1<<64-1, 2), [2]Fault{FaultBounds, FaultBounds}},
}

// Every rule of a bind; what is refused leaves no trace.
func TestBindRules(t *testing.T) {
	for _, c := range bindRules {
		for i, typ := range []ib.MWType{ib.MWType1, ib.MWType2} {
			table, pd := newTable(t, 5)
			other, _ := table.NewPD()
			w := newWindow(t, table, pd, typ)
			call := &bindCall{table: table, pd: pd, other: other, w: w, key: ib.NextKey(w.Key())}
			call.region(ib.BindWindows | ib.LocalWrite)
			call.b = all(call.r, ib.RemoteRead|ib.RemoteWrite|ib.RemoteAtomic)
			c.change(call)
			before := w.Key()
			fault := table.Bind(call.pd, 17, call.key, call.b)
			if fault != c.want[i] {
				t.Errorf("%s, %v: %v, want %v", c.name, typ, fault, c.want[i])
			}
			bound := fault == FaultNone && call.b.Length > 0
			if fault == FaultNone && w.Key() != call.key || fault != FaultNone && w.Key() != before {
				t.Errorf("%s, %v: key %#x, was %#x, asked for %#x; want %v", c.name, typ, uint32(w.Key()),
					uint32(before), uint32(call.key), c.want)
			}
			if (w.bound != nil) != bound || (call.r.windows == 1) != bound {
				t.Errorf("%s, %v: bound to %+v, %d windows on the region; want bound %v", c.name, typ, w.bound,
					call.r.windows, bound)
			}
			if _, open := table.CheckRemote(pd, 17, w.Key(), call.b.Addr, 1, 0); call.b.Access&ib.ZeroBased == 0 &&
				(open == FaultNone) != bound {
				t.Errorf("%s, %v: the key opens: %v, want %v", c.name, typ, open, bound)
			}
		}
	}
}

// A window of type 1 may be bound again and again, by any QP; each bind ends what
// was before, and Length 0 leaves nothing.
func TestRebindType1(t *testing.T) {
	table, pd := newTable(t, 3)
	a := register(t, table, pd, sized(8), 0x100, ib.BindWindows)
	b := register(t, table, pd, sized(8), 0x200, ib.BindWindows)
	w := newWindow(t, table, pd, ib.MWType1)
	opens := func(key ib.Key, va uint64) bool {
		_, fault := table.CheckRemote(pd, 99, key, va, 8, 0)
		return fault == FaultNone
	}
	nothing := bind(t, table, w, 17, ib.MWBind{}) // of what is not bound
	first := bind(t, table, w, 17, all(a, 0))
	s, _ := table.CheckRemote(pd, 99, first, 0x100, 8, 0)
	second := bind(t, table, w, 18, all(b, 0))
	if opens(nothing, 0x100) || opens(first, 0x100) || s.R.Valid() || !opens(second, 0x200) || a.windows != 0 ||
		b.windows != 1 {
		t.Errorf("after the second bind: first %v, second %v, %d and %d windows; want false, true, 0 and 1",
			opens(first, 0x100), opens(second, 0x200), a.windows, b.windows)
	}
	if fault := table.Bind(pd, 17, ib.NextKey(second),
		ib.MWBind{LKey: a.Key(), Addr: 0x100, Length: 9}); fault != FaultBounds || !opens(second, 0x200) {
		t.Errorf("after a bind that failed: %v, opens %v; want %v, true", fault, opens(second, 0x200), FaultBounds)
	}
	third := bind(t, table, w, 17, ib.MWBind{})
	if opens(second, 0x200) || opens(third, 0x200) || b.windows != 0 {
		t.Error("a window without length opens")
	}
}

// A window of type 2 goes from free to bound and back by invalidation only, and
// belongs to the QP that bound it in between.
func TestType2States(t *testing.T) {
	const mine, theirs = 17, 18
	table, pd := newTable(t, 2)
	r := register(t, table, pd, sized(8), 0, ib.BindWindows)
	w := newWindow(t, table, pd, ib.MWType2)
	key := bind(t, table, w, mine, all(r, 0))
	for _, qpn := range []ib.QPN{mine, theirs} {
		for _, b := range []ib.MWBind{all(r, 0), {}} {
			if fault := table.Bind(pd, qpn, ib.NextKey(key), b); fault != FaultState {
				t.Errorf("bind of a bound window to %d bytes by QP %d: %v, want %v", b.Length, qpn, fault, FaultState)
			}
		}
	}
	if fault := table.Invalidate(pd, theirs, key); fault != FaultQP {
		t.Errorf("another QP's invalidation: got %v, want %v", fault, FaultQP)
	}
	if fault := table.Invalidate(pd, mine, key); fault != FaultNone {
		t.Errorf("its own QP's invalidation: got %v, want none", fault)
	}
	if fault := table.Bind(pd, theirs, key, all(r, 0)); fault != FaultBind {
		t.Errorf("bind by the key that was invalidated: got %v, want %v", fault, FaultBind)
	}
	key = bind(t, table, w, theirs, all(r, 0))
	if _, fault := table.CheckRemote(pd, mine, key, 0, 8, 0); fault != FaultQP {
		t.Errorf("the QP that it belonged to before: got %v, want %v", fault, FaultQP)
	}
	if _, fault := table.CheckRemote(pd, theirs, key, 0, 8, 0); fault != FaultNone {
		t.Errorf("the QP that it belongs to: got %v, want none", fault)
	}
}

// Peers align atomics by the window's addresses. A bind with RemoteAtomic succeeds
// where those agree with the memory's modulo 8, and only there; then every aligned
// address is a word, whatever the region's.
func TestWindowAtomics(t *testing.T) {
	for shift := range 8 { // of the memory
		for iova := range uint64(8) { // of the region
			for off := range uint64(8) { // of the window
				for _, zero := range []ib.Access{0, ib.ZeroBased} {
					for _, direct := range []bool{true, false} {
						name := fmt.Sprintf("memory at %d, region at %d, window at +%d, rights %#x, direct %v", shift,
							iova, off, zero, direct)
						checkWindowAtomics(t, name, Bytes(aligned(40, shift)), direct, uint64(shift), iova, off, zero)
					}
				}
			}
		}
	}
}

func checkWindowAtomics(t *testing.T, name string, m Memory, direct bool, shift, iova, off uint64, zero ib.Access) {
	t.Helper()
	word := (shift + off) % 8 // phase of the first byte as whoever carries the atomic out sees it
	if !direct {
		m, word = late{m}, (iova+off)%8
	}
	table, pd := newTable(t, 2)
	r := register(t, table, pd, m, 0x1000+iova, ib.BindWindows|ib.LocalWrite)
	w := newWindow(t, table, pd, ib.MWType2)
	b := ib.MWBind{LKey: r.Key(), Addr: 0x1000 + iova + off, Length: 32, Access: ib.RemoteAtomic | zero}
	first := b.Addr
	if zero != 0 {
		first = 0
	}
	want := FaultNone
	if first%8 != word {
		want = FaultBind
	}
	key := ib.NextKey(w.Key())
	fault := table.Bind(pd, 17, key, b)
	if fault != want {
		t.Errorf("%s: %v, want %v", name, fault, want)
	}
	if fault != FaultNone || !direct {
		return
	}
	for va := (first + 7) &^ 7; va+8 <= first+32; va += 8 {
		s, fault := table.CheckRemote(pd, 17, key, va, 8, ib.RemoteAtomic)
		if fault != FaultNone {
			t.Fatalf("%s: got %v, want none", name, fault)
		}
		if _, err := s.FetchAdd(1); err != nil {
			t.Errorf("%s: address %#x: %v", name, va, err)
		}
	}
}

package mr

import (
	"bytes"
	"encoding/binary"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/goroce/goroce/ib"
)

// Windows live in the keys of regions, and keep their domain from being freed.
func TestAllocWindow(t *testing.T) {
	table, pd := newTable(t, 3)
	strangePD, _ := NewTable(1, CountedKeys(counter())).NewPD()
	freedPD, _ := table.NewPD()
	if err := table.FreePD(freedPD); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		pd   *PD
		typ  ib.MWType
		want error
	}{
		{"type 0", pd, 0, ib.ErrInvalid}, {"type 3", pd, 3, ib.ErrInvalid},
		{"no domain", nil, ib.MWType1, ib.ErrInvalid},
		{"another table's domain", strangePD, ib.MWType1, ib.ErrForeign},
		{"freed domain", freedPD, ib.MWType2, ib.ErrClosed},
	} {
		if w, err := table.AllocWindow(c.pd, c.typ); !errors.Is(err, c.want) || w != nil {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
	}
	r := register(t, table, pd, sized(8), 0, 0)
	w1, w2 := newWindow(t, table, pd, ib.MWType1), newWindow(t, table, pd, ib.MWType2)
	if w1.Type() != ib.MWType1 || w2.Type() != ib.MWType2 || w1.PD() != pd {
		t.Errorf("windows %+v, %+v; want types 1 and 2 of the domain", w1, w2)
	}
	if i, j, k := r.Key()>>8, w1.Key()>>8, w2.Key()>>8; i == j || j == k || i == k {
		t.Errorf("indices %d, %d, %d; want three different ones", i, j, k)
	}
	for _, w := range []*Window{w1, w2} {
		if _, fault := table.CheckRemote(pd, 17, w.Key(), 0, 0, 0); fault != FaultKey {
			t.Errorf("the key of a new %v window: got %v, want %v", w.Type(), fault, FaultKey)
		}
	}
	if _, err := table.AllocWindow(pd, ib.MWType1); !errors.Is(err, ib.ErrLimit) ||
		!strings.Contains(err.Error(), "allocate memory window: 3 regions and windows") {
		t.Errorf("fourth key of three: %v, want %v by 3 regions and windows", err, ib.ErrLimit)
	}
	if err := table.FreePD(pd); !errors.Is(err, ib.ErrBusy) ||
		!strings.Contains(err.Error(), "1 memory regions, 2 memory windows") {
		t.Errorf("free of the domain: %v, want %v by 1 memory regions, 2 memory windows", err, ib.ErrBusy)
	}
}

// The key that a window had last opens nothing when its place is used again, by
// whatever, and whatever the source of variants says.
func TestWindowKeyOnReuse(t *testing.T) {
	variant := uint8(7)
	table := NewTable(2, CountedKeys(func() uint8 { return variant }))
	pd, _ := table.NewPD()
	r := register(t, table, pd, sized(8), 0, ib.BindWindows)
	for range 300 {
		w := newWindow(t, table, pd, ib.MWType1)
		old := bind(t, table, w, 17, all(r, 0))
		if err := table.FreeWindow(w); err != nil {
			t.Fatal(err)
		}
		variant = uint8(old)
		next := register(t, table, pd, sized(8), 0, 0)
		if _, fault := table.CheckRemote(pd, 17, old, 0, 8, 0); next.Key() == old || fault != FaultKey {
			t.Fatalf("key %#x after %#x, which says %v, want %v", uint32(next.Key()), uint32(old), fault, FaultKey)
		}
		if err := table.Deregister(next); err != nil {
			t.Fatal(err)
		}
	}
}

// Freeing a window ends what it is bound to: its key, the Spans that were checked
// through it, and its hold on the region and the domain.
func TestFreeWindow(t *testing.T) {
	for _, typ := range []ib.MWType{ib.MWType1, ib.MWType2} {
		table, pd := newTable(t, 2)
		r := register(t, table, pd, Bytes(make([]byte, 8)), 0, ib.BindWindows|ib.LocalWrite)
		w := newWindow(t, table, pd, typ)
		key := bind(t, table, w, 17, all(r, ib.RemoteWrite))
		s, fault := table.CheckRemote(pd, 17, key, 0, 8, ib.RemoteWrite)
		if fault != FaultNone {
			t.Fatal(fault)
		}
		if err := NewTable(2, CountedKeys(counter())).FreeWindow(w); !errors.Is(err, ib.ErrForeign) {
			t.Errorf("%v: another table's window: got %v, want %v", typ, err, ib.ErrForeign)
		}
		if err := table.FreeWindow(w); err != nil {
			t.Fatal(err)
		}
		if err := table.FreeWindow(w); !errors.Is(err, ib.ErrClosed) {
			t.Errorf("%v: second free: got %v, want %v", typ, err, ib.ErrClosed)
		}
		if _, fault := table.CheckRemote(pd, 17, key, 0, 8, 0); fault != FaultKey {
			t.Errorf("%v: key of a freed window: got %v, want %v", typ, fault, FaultKey)
		}
		if _, err := Scatter(SGL{s}, 0, []byte{1}, nil); err != FaultKey {
			t.Errorf("%v: write by an old span: got %v, want %v", typ, err, FaultKey)
		}
		if fault := table.Bind(pd, 17, ib.NextKey(key), all(r, 0)); fault != FaultKey {
			t.Errorf("%v: bind of a freed window: got %v, want %v", typ, fault, FaultKey)
		}
		if err := errors.Join(table.Deregister(r), table.FreePD(pd)); err != nil {
			t.Errorf("%v: %v", typ, err)
		}
	}
}

// While windows are bound to a region it stays, and the error counts them.
func TestRegionWithWindows(t *testing.T) {
	table, pd := newTable(t, 3)
	r := register(t, table, pd, sized(8), 0, ib.BindWindows)
	w1, w2 := newWindow(t, table, pd, ib.MWType1), newWindow(t, table, pd, ib.MWType2)
	busy := func(text string) {
		t.Helper()
		if err := table.Deregister(r); !errors.Is(err, ib.ErrBusy) || !strings.Contains(err.Error(), text) {
			t.Errorf("deregister: %v, want %q", err, text)
		}
		if !r.Valid() {
			t.Error("the region is gone")
		}
	}
	bind(t, table, w1, 17, all(r, 0))
	busy("by 1 bound memory windows")
	bind(t, table, w1, 17, all(r, 0)) // again: still one
	busy("by 1 bound memory windows")
	bind(t, table, w2, 17, all(r, 0))
	busy("by 2 bound memory windows")
	if err := table.Deregister(w2.bound); !errors.Is(err, ib.ErrInvalid) {
		t.Errorf("deregister of a window's piece: got %v, want %v", err, ib.ErrInvalid)
	}
	table.Invalidate(pd, 17, w2.Key())
	busy("by 1 bound memory windows")
	bind(t, table, w1, 17, ib.MWBind{})
	if err := table.Deregister(r); err != nil {
		t.Error(err)
	}
}

// peerTest has a region of 64 bytes at peerIOVA, windows of all kinds on its bytes
// 16 to 47, bound for peerQPN, and a window of type 1 on a huge region at 0.
type peerTest struct {
	table       *Table
	pd, otherPD *PD
	r           *Region
	w1, w2      *Window
	zero, huge  *Window
}

const peerQPN, otherQPN, peerIOVA, read, write = 17, 18, 0x1000, ib.RemoteRead, ib.RemoteWrite

func newPeerTest(t *testing.T) *peerTest {
	table, pd := newTable(t, 8)
	otherPD, _ := table.NewPD()
	f := &peerTest{table: table, pd: pd, otherPD: otherPD,
		r:  register(t, table, pd, sized(64), peerIOVA, ib.BindWindows|ib.LocalWrite|read),
		w1: newWindow(t, table, pd, ib.MWType1), w2: newWindow(t, table, pd, ib.MWType2),
		zero: newWindow(t, table, pd, ib.MWType2), huge: newWindow(t, table, pd, ib.MWType1)}
	piece := ib.MWBind{LKey: f.r.Key(), Addr: peerIOVA + 16, Length: 32, Access: write}
	bind(t, table, f.w1, peerQPN, piece)
	bind(t, table, f.w2, peerQPN, piece)
	piece.Access |= ib.ZeroBased
	bind(t, table, f.zero, peerQPN, piece)
	bind(t, table, f.huge, peerQPN, all(register(t, table, pd, sized(MaxLen), 0, ib.BindWindows), 0))
	return f
}

// peerCheck is one call of CheckRemote and what it should return.
type peerCheck struct {
	name       string
	pd         *PD
	qpn        ib.QPN
	key        ib.Key
	va, length uint64
	need       ib.Access
	want       Fault
	off        uint64
}

func (f *peerTest) run(t *testing.T, checks []peerCheck) {
	for _, c := range checks {
		s, fault := f.table.CheckRemote(c.pd, c.qpn, c.key, c.va, c.length, c.need)
		if fault != c.want {
			t.Errorf("%s: %v, want %v", c.name, fault, c.want)
		}
		if fault != FaultNone && s != (Span{}) {
			t.Errorf("%s: a Span %+v with a fault, want none", c.name, s)
		}
		if fault == FaultNone && (s.R.Key() != c.key || s.Off != c.off || uint64(s.Len) != c.length) {
			t.Errorf("%s: span %+v, want %d bytes at %d", c.name, s, c.length, c.off)
		}
		region, fault := f.table.RemoteRegion(c.pd, c.qpn, c.key, c.need)
		if want := c.want == FaultNone || c.want == FaultBounds; want != (fault == FaultNone) ||
			want != (region != nil) {
			t.Errorf("%s: all of it: %v, want it to open: %v", c.name, fault, want)
		}
	}
}

// Who may do what by which key.
func TestCheckRemote(t *testing.T) {
	const iova, qpn = peerIOVA, peerQPN
	f := newPeerTest(t)
	f.run(t, []peerCheck{
		{"region", f.pd, qpn, f.r.Key(), iova, 64, read, FaultNone, 0},
		{"region, any QP of the domain", f.pd, otherQPN, f.r.Key(), iova + 1, 63, read, FaultNone, 1},
		{"region, other domain", f.otherPD, qpn, f.r.Key(), iova, 64, read, FaultPD, 0},
		{"region, right missing", f.pd, qpn, f.r.Key(), iova, 64, write, FaultAccess, 0},
		{"type 1", f.pd, qpn, f.w1.Key(), iova + 16, 32, write, FaultNone, 0},
		{"type 1, any QP of the domain", f.pd, otherQPN, f.w1.Key(), iova + 47, 1, write, FaultNone, 31},
		{"type 1, other domain", f.otherPD, qpn, f.w1.Key(), iova + 16, 32, write, FaultPD, 0},
		{"type 1, a right of the region only", f.pd, qpn, f.w1.Key(), iova + 16, 32, read, FaultAccess, 0},
		{"type 1, wrong variant", f.pd, qpn, f.w1.Key() ^ 1, iova + 16, 32, write, FaultKey, 0},
		{"type 2", f.pd, qpn, f.w2.Key(), iova + 20, 8, write, FaultNone, 4},
		{"type 2, other QP", f.pd, otherQPN, f.w2.Key(), iova + 16, 32, write, FaultQP, 0},
		{"type 2, QP 0", f.pd, 0, f.w2.Key(), iova + 16, 32, write, FaultQP, 0},
		{"type 2, other domain", f.otherPD, qpn, f.w2.Key(), iova + 16, 32, write, FaultPD, 0},
		{"type 2, right missing", f.pd, qpn, f.w2.Key(), iova + 16, 32, read, FaultAccess, 0},
		{"key 0", f.pd, qpn, 0, iova, 1, 0, FaultKey, 0},
		{"index beyond the table", f.pd, qpn, 1<<32 - 1, iova, 1, 0, FaultKey, 0},
		{"domain before QP", f.otherPD, otherQPN, f.w2.Key(), 0, 1, read, FaultPD, 0},
		{"QP before right", f.pd, otherQPN, f.w2.Key(), 0, 1, read, FaultQP, 0},
		{"right before bounds", f.pd, qpn, f.w2.Key(), 0, 1, read, FaultAccess, 0},
	})
	for _, w := range []*Window{f.w1, f.w2, f.zero} {
		if _, fault := f.table.Check(f.pd, w.Key(), iova+16, 1, 0); fault != FaultKey {
			t.Errorf("the key of a window as L_Key: got %v, want %v", fault, FaultKey)
		}
	}
}

// Which bytes each key reaches, and by what addresses.
func TestCheckRemoteBounds(t *testing.T) {
	const iova, qpn = peerIOVA, peerQPN
	f := newPeerTest(t)
	f.run(t, []peerCheck{
		{"region, too long", f.pd, qpn, f.r.Key(), iova, 65, read, FaultBounds, 0},
		{"type 1, before the window", f.pd, qpn, f.w1.Key(), iova + 15, 1, write, FaultBounds, 0},
		{"type 1, behind the window", f.pd, qpn, f.w1.Key(), iova + 48, 1, write, FaultBounds, 0},
		{"type 1, too long", f.pd, qpn, f.w1.Key(), iova + 16, 33, write, FaultBounds, 0},
		{"type 1, end wraps", f.pd, qpn, f.w1.Key(), iova + 20, 1<<64 - 8, write, FaultBounds, 0},
		{"type 2, behind the window", f.pd, qpn, f.w2.Key(), iova + 48, 1, write, FaultBounds, 0},
		{"zero based", f.pd, qpn, f.zero.Key(), 0, 32, write, FaultNone, 0},
		{"zero based, last byte", f.pd, qpn, f.zero.Key(), 31, 1, write, FaultNone, 31},
		{"zero based, too long", f.pd, qpn, f.zero.Key(), 0, 33, write, FaultBounds, 0},
		{"zero based, by the region's address", f.pd, qpn, f.zero.Key(), iova + 16, 1, write, FaultBounds, 0},
		{"nothing of a window", f.pd, qpn, f.zero.Key(), 32, 0, write, FaultNone, 32},
		{"4 GiB - 1 of a window", f.pd, qpn, f.huge.Key(), 1, 1<<32 - 1, 0, FaultNone, 1},
		{"4 GiB of a window", f.pd, qpn, f.huge.Key(), 1, 1 << 32, 0, FaultBounds, 0},
	})
}

// What is written and read by a window's key is the region's bytes from its offset
// on, in direct memory and by placements.
func TestWindowMovesBytes(t *testing.T) {
	for _, direct := range []bool{true, false} {
		b := aligned(64, 0)
		m := Bytes(b)
		if !direct {
			m = late{m}
		}
		table, pd := newTable(t, 2)
		r := register(t, table, pd, m, 0x1000, ib.BindWindows|ib.LocalWrite)
		w := newWindow(t, table, pd, ib.MWType2)
		key := bind(t, table, w, 17, ib.MWBind{LKey: r.Key(), Addr: 0x1010, Length: 32,
			Access: allRights&^ib.LocalWrite | ib.ZeroBased})
		s, fault := table.CheckRemote(pd, 17, key, 8, 16, ib.RemoteWrite)
		if fault != FaultNone || s.R.Direct() != direct {
			t.Fatal(fault, s.R.Direct())
		}
		list, err := Scatter(SGL{s}, 4, []byte("abcdefgh"), make([]Placement, 0, 1))
		if err != nil || (len(list) == 0) != direct {
			t.Fatalf("%d placements, %v; want none only if direct: %v", len(list), err, direct)
		}
		for i := range list {
			if _, err := list[i].Do(); err != nil {
				t.Fatal(err)
			}
		}
		want := make([]byte, 64)
		copy(want[16+8+4:], "abcdefgh")
		if !bytes.Equal(b, want) {
			t.Errorf("direct %v: region holds %q, want %q", direct, b, want)
		}
		got := make([]byte, 10)
		if err := Gather(got, SGL{s}, 3); err != nil || string(got) != "\x00abcdefgh\x00" {
			t.Errorf("direct %v: read %q, %v; want abcdefgh", direct, got, err)
		}
		if beyond := (Span{s.R, 25, 8}).Write(make([]byte, 8)); direct && beyond != FaultBounds {
			t.Errorf("write beyond the piece: %v, want %v", beyond, FaultBounds)
		}
		add := Placement{Kind: PlaceFetchAdd, R: s.R, Off: 24, A: 5}
		swap := Placement{Kind: PlaceCompareSwap, R: s.R, Off: 24, A: 5, B: 9}
		for i, p := range []Placement{add, swap} {
			if old, err := p.Do(); err != nil || old != []uint64{0, 5}[i] {
				t.Errorf("direct %v: %v returned %d, %v; want %d", direct, p.Kind, old, err, []uint64{0, 5}[i])
			}
		}
		if n := binary.NativeEndian.Uint64(b[16+24:]); n != 9 {
			t.Errorf("direct %v: word is %d, want 9", direct, n)
		}
		table.Invalidate(pd, 17, key)
		if _, err := add.Do(); err != FaultKey {
			t.Errorf("direct %v: placement after the invalidation: got %v, want %v", direct, err, FaultKey)
		}
	}
}

// While a window's binding changes all the time, a key opens the piece that it was
// bound to, and never another.
func TestConcurrentBinds(t *testing.T) {
	const qpn, rounds = peerQPN, 3000
	table, pd := newTable(t, 3)
	b := aligned(128, 0)
	r := register(t, table, pd, Bytes(b), 0, ib.BindWindows|ib.LocalWrite|ib.RemoteInvalidate)
	windows := []*Window{newWindow(t, table, pd, ib.MWType1), newWindow(t, table, pd, ib.MWType2)}
	var binders, peers sync.WaitGroup
	done := make(chan struct{})
	for _, w := range windows {
		binders.Go(func() {
			for range rounds {
				old, key := w.Key(), ib.NextKey(w.Key())
				half := uint64(key%2) * 64 // of odd keys, the second
				if fault := table.Bind(pd, qpn, key, ib.MWBind{LKey: r.Key(), Addr: half, Length: 64,
					Access: ib.RemoteWrite}); fault != FaultNone {
					t.Errorf("bind: got %v, want none", fault)
					return
				}
				if _, fault := table.CheckRemote(pd, qpn, old, 0, 0, 0); fault != FaultKey {
					t.Errorf("the key before: got %v, want %v", fault, FaultKey)
				}
				s, fault := table.CheckRemote(pd, qpn, key, half, 64, ib.RemoteWrite)
				if fault != FaultNone {
					t.Errorf("the new key: got %v, want none", fault)
				}
				if w.Type() == ib.MWType1 {
					if fault := table.Invalidate(pd, qpn, r.Key()); fault != FaultState {
						t.Errorf("invalidate of the region with a window: got %v, want %v", fault, FaultState)
					}
				} else if fault := table.Invalidate(pd, qpn, key); fault != FaultNone || s.R.Valid() {
					t.Errorf("invalidate: %v, valid %v; want no fault, false", fault, s.R.Valid())
				}
			}
		})
		peers.Go(func() { writeHalves(t, table, pd, w, done) })
	}
	binders.Wait()
	close(done)
	peers.Wait()
	for i, v := range b {
		if v != 0 && v != byte(1+i/64) {
			t.Fatalf("byte %d is %d: written by the other half's key", i, v)
		}
	}
}

// writeHalves writes by w's keys, as a peer of QP peerQPN, until done is closed: ones
// by even keys, to the first half, and twos by odd keys, to the second.
func writeHalves(t *testing.T, table *Table, pd *PD, w *Window, done chan struct{}) {
	for {
		select {
		case <-done:
			return
		default:
		}
		key := w.Key()
		odd := uint64(key % 2)
		s, fault := table.CheckRemote(pd, peerQPN, key, odd*64, 64, ib.RemoteWrite)
		if fault == FaultKey {
			continue
		}
		if fault != FaultNone {
			t.Error(fault)
			return
		}
		if _, err := Scatter(SGL{s}, 0, bytes.Repeat([]byte{byte(1 + odd)}, 64), nil); err != nil && err != FaultKey {
			t.Error(err)
			return
		}
	}
}

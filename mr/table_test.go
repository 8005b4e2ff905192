package mr

import (
	"errors"
	"math"
	"math/big"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"github.com/goroce/goroce/ib"
)

func TestCheck(t *testing.T) {
	table, pd := newTable(t, 4)
	other, _ := table.NewPD()
	const iova = 0x10000
	r := register(t, table, pd, sized(100), iova, ib.RemoteRead)
	end := register(t, table, pd, sized(16), math.MaxUint64-15, 0) // ends at 2^64
	big := register(t, table, pd, sized(MaxLen), 0, 0)
	key := r.Key()
	for _, c := range []struct {
		name   string
		pd     *PD
		key    ib.Key
		va     uint64
		length uint64
		need   ib.Access
		want   Fault
		off    uint64
	}{
		{"all", pd, key, iova, 100, ib.RemoteRead, FaultNone, 0},
		{"last byte", pd, key, iova + 99, 1, 0, FaultNone, 99},
		{"nothing, at the start", pd, key, iova, 0, 0, FaultNone, 0},
		{"nothing, at the end", pd, key, iova + 100, 0, 0, FaultNone, 100},
		{"nothing, behind the end", pd, key, iova + 101, 0, 0, FaultBounds, 0},
		{"a byte too many", pd, key, iova, 101, 0, FaultBounds, 0},
		{"a byte early", pd, key, iova - 1, 1, 0, FaultBounds, 0},
		{"a byte late", pd, key, iova + 100, 1, 0, FaultBounds, 0},
		{"address near 2^64", pd, key, math.MaxUint64, 1, 0, FaultBounds, 0},
		{"end wraps to the start", pd, key, math.MaxUint64 - 99, iova + 150, 0, FaultBounds, 0},
		{"length 2^64-1", pd, key, iova, math.MaxUint64, 0, FaultBounds, 0},
		{"address and length both huge", pd, key, math.MaxUint64, math.MaxUint64, 0, FaultBounds, 0},
		{"region that ends at 2^64", pd, end.Key(), math.MaxUint64, 1, 0, FaultNone, 15},
		{"beyond 2^64", pd, end.Key(), math.MaxUint64, 2, 0, FaultBounds, 0},
		{"address 0 is not the end of that region", pd, end.Key(), 0, 0, 0, FaultBounds, 0},
		{"piece of 4 GiB - 1", pd, big.Key(), 1, math.MaxUint32, 0, FaultNone, 1},
		{"piece of 4 GiB", pd, big.Key(), 1, math.MaxUint32 + 1, 0, FaultBounds, 0},
		{"other domain", other, key, iova, 1, 0, FaultPD, 0},
		{"no domain", nil, key, iova, 1, 0, FaultPD, 0},
		{"right missing", pd, key, iova, 1, ib.RemoteWrite, FaultAccess, 0},
		{"wrong variant", pd, key ^ 1, iova, 1, 0, FaultKey, 0},
		{"key 0", pd, 0, iova, 1, 0, FaultKey, 0},
		{"free index", pd, 4 << 8, iova, 1, 0, FaultKey, 0},
		{"index beyond the table", pd, math.MaxUint32, iova, 1, 0, FaultKey, 0},
		{"key before domain before right before bounds", other, key, 0, 1, ib.RemoteWrite, FaultPD, 0},
		{"right before bounds", pd, key, 0, 1, ib.RemoteWrite, FaultAccess, 0},
	} {
		s, fault := table.Check(c.pd, c.key, c.va, c.length, c.need)
		if fault != c.want {
			t.Errorf("%s: %v, want %v", c.name, fault, c.want)
		}
		if fault != FaultNone && s != (Span{}) {
			t.Errorf("%s: a Span %+v with a fault, want none", c.name, s)
		}
		if fault == FaultNone && (s.R.Key() != c.key || s.Off != c.off || uint64(s.Len) != c.length) {
			t.Errorf("%s: span %+v, want %d bytes at %d", c.name, s, c.length, c.off)
		}
	}
}

// Every set of rights against every need.
func TestAccessTable(t *testing.T) {
	table, pd := newTable(t, 16)
	for access := range allRights + 1 {
		r, err := table.Register(pd, sized(8), 0, access)
		if legal := access&(ib.RemoteWrite|ib.RemoteAtomic) == 0 || access&ib.LocalWrite != 0; legal != (err == nil) {
			t.Errorf("register with access %#x: %v, want it legal: %v", access, err, legal)
		}
		if err != nil {
			continue
		}
		for need := range allRights + 1 {
			want := FaultNone
			if need&access != need {
				want = FaultAccess
			}
			if _, fault := table.Check(pd, r.Key(), 0, 8, need); fault != want {
				t.Errorf("access %#x, need %#x: %v, want %v", access, need, fault, want)
			}
		}
		if err := table.Deregister(r); err != nil {
			t.Fatal(err)
		}
	}
}

func TestRegisterRefuses(t *testing.T) {
	table, pd := newTable(t, 16)
	stranger, _ := NewTable(1, CountedKeys(counter())).NewPD()
	freed, _ := table.NewPD()
	if err := table.FreePD(freed); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name   string
		pd     *PD
		m      Memory
		iova   uint64
		access ib.Access
		err    error
	}{
		{"remote write only", pd, sized(1), 0, ib.RemoteWrite, ib.ErrInvalid},
		{"remote atomic only", pd, sized(8), 0, ib.RemoteAtomic, ib.ErrInvalid},
		{"unknown right", pd, sized(1), 0, 1 << 19, ib.ErrInvalid},
		{"addresses wrap", pd, sized(2), math.MaxUint64, 0, ib.ErrInvalid},
		{"up to 2^64", pd, sized(1), math.MaxUint64, 0, nil},
		{"too long", pd, sized(MaxLen + 1), 0, 0, ib.ErrInvalid},
		{"zero based, but not", pd, sized(1), 4096, ib.ZeroBased, ib.ErrInvalid},
		{"zero based", pd, sized(1), 0, ib.ZeroBased, nil},
		{"visible to all", pd, sized(1), 0, ib.FlushGlobal, nil},
		{"persistent, in memory that is not", pd, sized(1), 0, ib.FlushPersistent, ib.ErrNotSupported},
		{"persistent", pd, &durable{Memory: sized(1)}, 0, ib.FlushPersistent, nil},
		{"empty", pd, Bytes(nil), math.MaxUint64, 0, nil},
		{"atomic, address out of step with memory", pd, Bytes(aligned(16, 4)), 8, ib.LocalWrite | ib.RemoteAtomic,
			ib.ErrInvalid},
		{"atomic, in step", pd, Bytes(aligned(16, 4)), 12, ib.LocalWrite | ib.RemoteAtomic, nil},
		{"no atomics, out of step", pd, Bytes(aligned(16, 4)), 8, ib.LocalWrite | ib.RemoteWrite, nil},
		{"another table's domain", stranger, sized(1), 0, 0, ib.ErrForeign},
		{"freed domain", freed, sized(1), 0, 0, ib.ErrClosed},
		{"no domain", nil, sized(1), 0, 0, ib.ErrInvalid},
	} {
		_, err := table.Register(c.pd, c.m, c.iova, c.access)
		if !errors.Is(err, c.err) {
			t.Errorf("%s: %v, want %v", c.name, err, c.err)
		}
	}
}

func TestTableFull(t *testing.T) {
	table, pd := newTable(t, 2)
	a := register(t, table, pd, sized(1), 0, 0)
	register(t, table, pd, sized(1), 0, 0)
	if _, err := table.Register(pd, sized(1), 0, 0); !errors.Is(err, ib.ErrLimit) {
		t.Fatalf("third region of two: got %v, want %v", err, ib.ErrLimit)
	}
	if err := table.Deregister(a); err != nil {
		t.Fatal(err)
	}
	register(t, table, pd, sized(1), 0, 0)
}

// A key is not used again soon, so that the old one opens nothing.
func TestKeysChangeOnReuse(t *testing.T) {
	table := NewTable(1, CountedKeys(func() uint8 { return 0xFF }))
	pd, _ := table.NewPD()
	var old *Region
	for range 300 {
		r := register(t, table, pd, sized(1), 0, 0)
		if old != nil {
			if old.Key() == r.Key() {
				t.Fatalf("key %#x again, want another", uint32(r.Key()))
			}
			if _, fault := table.Check(pd, old.Key(), 0, 1, 0); fault != FaultKey {
				t.Fatalf("stale key: got %v, want %v", fault, FaultKey)
			}
			if old.Valid() || !r.Valid() {
				t.Fatal("Valid is wrong")
			}
		}
		if err := table.Deregister(r); err != nil {
			t.Fatal(err)
		}
		if err := table.Deregister(r); !errors.Is(err, ib.ErrClosed) {
			t.Fatalf("second Deregister: got %v, want %v", err, ib.ErrClosed)
		}
		old = r
	}
	if err := NewTable(1, CountedKeys(counter())).Deregister(old); !errors.Is(err, ib.ErrForeign) {
		t.Errorf("another table's region: got %v, want %v", err, ib.ErrForeign)
	}
}

// Keys may come in any order: those of index 0, and those whose place is taken, are passed
// over; a table grows while it is used, and finds what is there, and only that.
func TestKeysAtRandom(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	const most = 3000
	table := NewTable(most, func() ib.Key {
		if rng.IntN(4) == 0 {
			return ib.Key(rng.Uint32() & 0xFF)
		}
		return ib.Key(rng.Uint32())
	})
	pd, err := table.NewPD()
	if err != nil {
		t.Fatal(err)
	}
	var live []*Region
	var windows []*Window
	have := map[ib.Key]bool{}
	for len(have) < most {
		if len(have)%3 == 0 {
			w := newWindow(t, table, pd, ib.MWType2)
			windows, have[w.Key()] = append(windows, w), true
		} else {
			r := register(t, table, pd, sized(8), 0, ib.BindWindows|ib.RemoteRead)
			live, have[r.Key()] = append(live, r), true
		}
	}
	if _, err := table.Register(pd, sized(1), 0, 0); !errors.Is(err, ib.ErrLimit) {
		t.Errorf("one too many: got %v, want %v", err, ib.ErrLimit)
	}
	if _, none := have[0]; none {
		t.Error("an index of 0 was given out")
	}
	for i, w := range windows {
		old := w.Key()
		delete(have, old)
		have[bind(t, table, w, 17, all(live[i], ib.RemoteRead))] = true
	}
	for range 100_000 {
		key := ib.Key(rng.Uint32())
		if _, fault := table.CheckRemote(pd, 17, key, 0, 1, ib.RemoteRead); (fault == FaultNone) != have[key] {
			t.Fatalf("key %#x: %v, want it to open: %v", uint32(key), fault, have[key])
		}
	}
	for key := range have {
		if _, fault := table.CheckRemote(pd, 17, key, 0, 1, ib.RemoteRead); fault != FaultNone {
			t.Fatalf("key %#x: got %v, want none", uint32(key), fault)
		}
	}
	for _, w := range windows {
		if err := table.FreeWindow(w); err != nil {
			t.Fatal(err)
		}
	}
	for _, r := range live {
		if err := table.Deregister(r); err != nil {
			t.Fatal(err)
		}
		if _, fault := table.CheckRemote(pd, 17, r.Key(), 0, 1, 0); fault != FaultKey {
			t.Fatalf("key %#x after its end: got %v, want %v", uint32(r.Key()), fault, FaultKey)
		}
	}
	for range most {
		register(t, table, pd, sized(1), 0, 0)
	}
}

func TestPDLifetime(t *testing.T) {
	table, pd := newTable(t, 4)
	r := register(t, table, pd, sized(1), 0, 0)
	register(t, table, pd, sized(1), 0, 0)
	if err := pd.Acquire(UserQP); err != nil {
		t.Fatal(err)
	}
	err := table.FreePD(pd)
	if !errors.Is(err, ib.ErrBusy) || !strings.Contains(err.Error(), "2 memory regions, 1 QPs") {
		t.Errorf("free in use: %v, want %v by 2 memory regions, 1 QPs", err, ib.ErrBusy)
	}
	pd.Release(UserQP)
	table.Deregister(r)
	if err := table.FreePD(pd); !errors.Is(err, ib.ErrBusy) || !strings.Contains(err.Error(), "1 memory regions;") {
		t.Errorf("free with a region left: %v, want %v by 1 memory regions", err, ib.ErrBusy)
	}
	pd, _ = table.NewPD()
	if err := table.FreePD(pd); err != nil {
		t.Errorf("free of an idle domain: %v", err)
	}
	if err := table.FreePD(pd); !errors.Is(err, ib.ErrClosed) {
		t.Errorf("second free: got %v, want %v", err, ib.ErrClosed)
	}
	if err := pd.Acquire(UserQP); !errors.Is(err, ib.ErrClosed) {
		t.Errorf("use of a freed domain: got %v, want %v", err, ib.ErrClosed)
	}
	if err := NewTable(1, CountedKeys(counter())).FreePD(pd); !errors.Is(err, ib.ErrForeign) {
		t.Errorf("free in another table: got %v, want %v", err, ib.ErrForeign)
	}
}

func TestPDLimit(t *testing.T) {
	table := NewTable(1, CountedKeys(counter()))
	var last *PD
	for range MaxPDs {
		pd, err := table.NewPD()
		if err != nil {
			t.Fatal(err)
		}
		last = pd
	}
	if _, err := table.NewPD(); !errors.Is(err, ib.ErrLimit) {
		t.Fatalf("domain %d: got %v, want %v", MaxPDs+1, err, ib.ErrLimit)
	}
	table.FreePD(last)
	if _, err := table.NewPD(); err != nil {
		t.Fatal(err)
	}
}

func TestResolve(t *testing.T) {
	table, pd := newTable(t, 4)
	a := register(t, table, pd, sized(100), 1000, 0)
	b := register(t, table, pd, sized(50), 0, ib.LocalWrite)
	good := []ib.SGE{{Addr: 1010, Length: 5, LKey: a.Key()}, {Length: 0, LKey: 0xBAD},
		{Addr: 0, Length: 50, LKey: b.Key()}}
	sgl, fault := table.Resolve(pd, good, 0, nil)
	if fault != FaultNone || len(sgl) != 2 || sgl[0] != (Span{a, 10, 5}) || sgl[1] != (Span{b, 0, 50}) ||
		sgl.Len() != 55 {
		t.Errorf("resolved to %+v, %v; want %+v", sgl, fault, SGL{{a, 10, 5}, {b, 0, 50}})
	}
	if got, fault := table.Resolve(pd, good, ib.LocalWrite, sgl); fault != FaultAccess || len(got) != 2 {
		t.Errorf("for writing: %d spans, %v; want 2, %v", len(got), fault, FaultAccess)
	}
	if got, fault := table.Resolve(pd, []ib.SGE{good[0], {Addr: 1099, Length: 2, LKey: a.Key()}}, 0,
		sgl[:0]); fault != FaultBounds || len(got) != 0 {
		t.Errorf("beyond the end: %d spans, %v; want 0, %v", len(got), fault, FaultBounds)
	}
}

// FuzzCheck compares the arithmetic of Register and Check with that of integers
// without bounds.
func FuzzCheck(f *testing.F) {
	f.Add(uint64(0), uint64(0), uint64(0), uint64(0))
	f.Add(uint64(math.MaxUint64), uint64(1), uint64(0), uint64(0))
	f.Add(uint64(1<<63), uint64(4096), uint64(1<<63+4095), uint64(1))
	f.Add(uint64(4096), uint64(100), uint64(math.MaxUint64-10), uint64(5000))
	f.Fuzz(func(t *testing.T, iova, size, va, length uint64) {
		num := func(n uint64) *big.Int { return new(big.Int).SetUint64(n) }
		sum := func(a, b uint64) *big.Int { return new(big.Int).Add(num(a), num(b)) }
		space := new(big.Int).Lsh(big.NewInt(1), 64)

		table, pd := newTable(t, 1)
		r, err := table.Register(pd, sized(size), iova, 0)
		if want := size <= MaxLen && (size == 0 || sum(iova, size).Cmp(space) <= 0); want != (err == nil) {
			t.Fatalf("register %d bytes at %#x: %v, want it to succeed: %v", size, iova, err, want)
		}
		if err != nil {
			return
		}
		inside := va >= iova && sum(va, length).Cmp(sum(iova, size)) <= 0
		_, fault := table.Check(pd, r.Key(), va, length, 0)
		if want := inside && length <= math.MaxUint32; want != (fault == FaultNone) {
			t.Fatalf("%d bytes at %#x of %d at %#x: %v, want it to succeed: %v", length, va, size, iova, fault, want)
		}
	})
}

// Lookups take no lock: while others register and deregister, a key opens its
// region as long as it is registered, and never another.
func TestConcurrentChecks(t *testing.T) {
	table, pd := newTable(t, 8)
	stay := register(t, table, pd, sized(64), 0, 0)
	var churn, check sync.WaitGroup
	done := make(chan struct{})
	keys := make(chan ib.Key, 16)
	for g := range uint64(3) {
		churn.Go(func() {
			for i := range uint64(2000) {
				iova := (g+1)<<40 | i<<8
				r, err := table.Register(pd, sized(64), iova, 0)
				if err != nil {
					t.Errorf("register: %v", err)
					return
				}
				if _, fault := table.Check(pd, r.Key(), iova, 64, 0); fault != FaultNone {
					t.Errorf("own region: got %v, want none", fault)
				}
				select {
				case keys <- r.Key():
				default:
				}
				if err := table.Deregister(r); err != nil {
					t.Errorf("deregister: %v", err)
				}
				if s, fault := table.Check(pd, r.Key(), iova, 64, 0); fault == FaultNone && s.R == r {
					t.Error("a deregistered region opens")
				}
			}
		})
	}
	check.Go(func() {
		for {
			select {
			case <-done:
				return
			case key := <-keys:
				if s, fault := table.Check(pd, key, 0, 0, 0); fault == FaultNone {
					t.Errorf("key %#x opens address 0 of %#x, want it refused", uint32(key), s.R.Addr())
				}
			default:
				if _, fault := table.Check(pd, stay.Key(), 0, 64, 0); fault != FaultNone {
					t.Errorf("region that stays: got %v, want none", fault)
					return
				}
			}
		}
	})
	churn.Wait()
	close(done)
	check.Wait()
}

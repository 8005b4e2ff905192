package mr

import (
	"bytes"
	"errors"
	"testing"

	"pgregory.net/rapid"

	"github.com/goroce/goroce/ib"
)

// drawSGL draws a scatter/gather list over a few regions, direct and not.
// backing[i] holds the bytes of region i.
func drawSGL(t *rapid.T) (sgl SGL, regions []*Region, backing [][]byte) {
	table := NewTable(8, CountedKeys(counter()))
	pd, err := table.NewPD()
	if err != nil {
		t.Fatal(err)
	}
	for range rapid.IntRange(1, 4).Draw(t, "regions") {
		b := aligned(rapid.IntRange(1, 60).Draw(t, "size"), rapid.IntRange(0, 7).Draw(t, "shift"))
		copy(b, rapid.SliceOfN(rapid.Byte(), len(b), len(b)).Draw(t, "contents"))
		m := Bytes(b)
		if rapid.Bool().Draw(t, "late") {
			m = late{m}
		}
		r, err := table.Register(pd, m, 0x1000, ib.LocalWrite)
		if err != nil {
			t.Fatal(err)
		}
		regions, backing = append(regions, r), append(backing, b)
	}
	var sges []ib.SGE
	for range rapid.IntRange(0, 32).Draw(t, "SGEs") {
		i := rapid.IntRange(0, len(regions)-1).Draw(t, "region")
		off := rapid.IntRange(0, len(backing[i])).Draw(t, "off")
		n := rapid.IntRange(0, min(20, len(backing[i])-off)).Draw(t, "len")
		sges = append(sges, ib.SGE{Addr: 0x1000 + uint64(off), Length: uint32(n), LKey: regions[i].Key()})
	}
	sgl, fault := table.Resolve(pd, sges, ib.LocalWrite, nil)
	if fault != FaultNone {
		t.Fatal(fault)
	}
	return sgl, regions, backing
}

// cells returns where each byte of the message in sgl lives.
func cells(sgl SGL, regions []*Region, backing [][]byte) []*byte {
	var list []*byte
	for _, s := range sgl {
		for i, r := range regions {
			for j := uint64(0); r == s.R && j < uint64(s.Len); j++ {
				list = append(list, &backing[i][s.Off+j])
			}
		}
	}
	return list
}

// TestGatherModel reads every pair of pieces that a message can be cut into.
func TestGatherModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		sgl, regions, backing := drawSGL(t)
		var want []byte
		for _, p := range cells(sgl, regions, backing) {
			want = append(want, *p)
		}
		got := make([]byte, len(want))
		for split := range len(want) + 1 {
			clear(got)
			if err := errors.Join(Gather(got[:split], sgl, 0), Gather(got[split:], sgl, uint64(split))); err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(got, want) {
				t.Fatalf("split at %d: got %x, want %x", split, got, want)
			}
			if err := Gather(make([]byte, len(want)-split+1), sgl, uint64(split)); err != FaultBounds {
				t.Fatalf("a byte more than there is, from %d: got %v, want %v", split, err, FaultBounds)
			}
		}
	})
}

// TestScatterModel writes every pair of packets that a message can be cut into.
func TestScatterModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		sgl, regions, backing := drawSGL(t)
		where := cells(sgl, regions, backing)
		if n := sgl.Len(); n != uint64(len(where)) {
			t.Fatalf("length %d, want %d", n, len(where))
		}
		before := make([][]byte, len(backing))
		for i, b := range backing {
			before[i] = bytes.Clone(b)
		}
		message := rapid.SliceOfN(rapid.Byte(), len(where), len(where)).Draw(t, "message")
		for i, p := range where {
			*p = message[i] // a later byte wins where pieces overlap
		}
		want := make([][]byte, len(backing))
		for i, b := range backing {
			want[i] = bytes.Clone(b)
		}
		for split := range len(message) + 1 {
			for i, b := range backing {
				copy(b, before[i])
			}
			scatter(t, sgl, 0, message[:split])
			scatter(t, sgl, uint64(split), message[split:])
			for i, b := range backing {
				if !bytes.Equal(b, want[i]) {
					t.Fatalf("split at %d: region %d is %x, want %x", split, i, b, want[i])
				}
			}
		}
	})
}

// scatter writes one packet and carries its placements out.
func scatter(t *rapid.T, sgl SGL, off uint64, p []byte) {
	list, err := Scatter(sgl, off, p, make([]Placement, 0, len(sgl)))
	if err != nil {
		t.Fatal(err)
	}
	for i := range list {
		if list[i].R.Direct() {
			t.Fatal("a placement for direct memory")
		}
		if _, err := list[i].Do(); err != nil {
			t.Fatal(err)
		}
	}
}

// Whatever Scatter refuses, it refuses before it writes.
func TestScatterAllOrNothing(t *testing.T) {
	table, pd := newTable(t, 4)
	near, far := make([]byte, 16), make([]byte, 16)
	a := register(t, table, pd, Bytes(near), 0, ib.LocalWrite)
	b := register(t, table, pd, late{Bytes(far)}, 0, ib.LocalWrite)
	gone := register(t, table, pd, Bytes(make([]byte, 16)), 0, ib.LocalWrite)
	if err := table.Deregister(gone); err != nil {
		t.Fatal(err)
	}
	p := bytes.Repeat([]byte{0xAA}, 32)
	for _, c := range []struct {
		name string
		sgl  SGL
		off  uint64
		room int
		want error
	}{
		{"no room for a placement", SGL{{a, 0, 16}, {b, 0, 16}}, 0, 0, ErrNoRoom},
		{"room for one of two", SGL{{a, 0, 8}, {b, 0, 8}, {a, 0, 8}, {b, 8, 8}}, 0, 1, ErrNoRoom},
		{"region gone", SGL{{a, 0, 16}, {gone, 0, 16}}, 0, 4, FaultKey},
		{"message too short", SGL{{a, 0, 16}}, 0, 4, FaultBounds},
		{"offset behind the message", SGL{{a, 0, 16}}, 17, 4, FaultBounds},
		{"offset huge", SGL{{a, 0, 16}, {b, 0, 16}}, 1<<64 - 1, 4, FaultBounds},
	} {
		list := make([]Placement, 1, 1+c.room)
		got, err := Scatter(c.sgl, c.off, p, list)
		if !errors.Is(err, c.want) || len(got) != 1 {
			t.Errorf("%s: %v with %d placements, want %v with none new", c.name, err, len(got)-1, c.want)
		}
		if bytes.IndexByte(near, 0xAA) >= 0 {
			t.Errorf("%s: written all the same", c.name)
		}
	}
	if err := Gather(p, SGL{{a, 0, 16}, {gone, 0, 16}}, 0); !errors.Is(err, FaultKey) {
		t.Errorf("gather from a region that is gone: got %v, want %v", err, FaultKey)
	}
	list, err := Scatter(SGL{{b, 4, 8}}, 0, p[:8], make([]Placement, 0, 1))
	if err != nil || len(list) != 1 || list[0].R != b || list[0].Off != 4 || &list[0].Data[0] != &p[0] ||
		len(list[0].Data) != 8 {
		t.Errorf("placement %+v, %v; want 8 bytes at 4 of the second region", list, err)
	}
}

func TestZeroAllocations(t *testing.T) {
	table, pd := newTable(t, 4)
	a := register(t, table, pd, Bytes(aligned(4096, 0)), 0, allRights|ib.BindWindows|ib.FlushGlobal)
	b := register(t, table, pd, late{Bytes(make([]byte, 64))}, 0, allRights)
	window := bind(t, table, newWindow(t, table, pd, ib.MWType2), 17, all(a, ib.RemoteWrite|ib.FlushGlobal))
	sges := []ib.SGE{{Addr: 8, Length: 1000, LKey: a.Key()}, {Addr: 0, Length: 64, LKey: b.Key()},
		{Addr: 2000, Length: 7, LKey: a.Key()}}
	sgl, one := make(SGL, 0, 32), make(SGL, 1)
	p := make([]byte, 900)
	list := make([]Placement, 0, 8)
	if n := testing.AllocsPerRun(100, func() {
		if _, err := table.Check(pd, a.Key(), 0, 4096, ib.RemoteRead); err != FaultNone {
			t.Fatal(err)
		}
		for _, key := range []ib.Key{a.Key(), window} {
			s, fault := table.CheckRemote(pd, 17, key, 8, 900, ib.RemoteWrite|ib.FlushGlobal)
			if fault != FaultNone {
				t.Fatal(fault)
			}
			if err := s.Flush(ib.FlushGlobally); err != nil {
				t.Fatal(err)
			}
			one[0] = s
			if _, err := Scatter(one, 0, p, nil); err != nil {
				t.Fatal(err)
			}
		}
		if fault := table.Invalidate(pd, 17, a.Key()); fault != FaultAccess {
			t.Fatal(fault)
		}
		sgl, _ = table.Resolve(pd, sges, ib.LocalWrite, sgl[:0])
		if err := Gather(p, sgl, 150); err != nil {
			t.Fatal(err)
		}
		if _, err := Scatter(sgl, 150, p, list); err != nil {
			t.Fatal(err)
		}
		word := Span{a, 8, 8}
		if _, err := word.FetchAdd(1); err != nil {
			t.Fatal(err)
		}
		if _, err := word.CompareSwap(1, 2); err != nil {
			t.Fatal(err)
		}
		if Gather(p, sgl, 1000) == nil {
			t.Fatal("read beyond the end")
		}
	}); n != 0 {
		t.Errorf("%v allocations a round, want 0", n)
	}
}

func BenchmarkScatter(b *testing.B) {
	benchmark(b, func(sgl SGL, p []byte) { Scatter(sgl, 64, p, nil) })
}
func BenchmarkGather(b *testing.B) { benchmark(b, func(sgl SGL, p []byte) { Gather(p, sgl, 64) }) }

func benchmark(b *testing.B, f func(SGL, []byte)) {
	table, pd := newTable(b, 1)
	r := register(b, table, pd, Bytes(aligned(8192, 0)), 0, allRights)
	p := make([]byte, 1024)
	sge := []ib.SGE{{Addr: 0, Length: 8192, LKey: r.Key()}}
	var sgl SGL
	b.SetBytes(int64(len(p)))
	for b.Loop() {
		sgl, _ = table.Resolve(pd, sge, 0, sgl[:0])
		f(sgl, p)
	}
}

// TestGatherEach: the payloads are those that Gather finds, wherever they lie, and
// headers stay as they are.
func TestGatherEach(t *testing.T) {
	table := NewTable(8, CountedKeys(counter()))
	pd, err := table.NewPD()
	if err != nil {
		t.Fatal(err)
	}
	mem := make([]byte, 4096)
	for i := range mem {
		mem[i] = byte(i ^ i>>8)
	}
	r, err := table.Register(pd, Bytes(mem), 0, allRights)
	if err != nil {
		t.Fatal(err)
	}
	slow, err := table.Register(pd, late{Bytes(mem)}, 0, allRights)
	if err != nil {
		t.Fatal(err)
	}
	const size, header, n = 40, 4, 32
	for _, c := range []struct {
		name string
		sgl  SGL
		off  uint64
	}{
		{"one region", SGL{{R: r, Off: 100, Len: 1000}}, 10},
		{"the second piece", SGL{{R: r, Off: 0, Len: 50}, {R: r, Off: 2000, Len: 1000}}, 60},
		{"two pieces", SGL{{R: r, Off: 0, Len: 50}, {R: r, Off: 2000, Len: 1000}}, 10},
		{"memory that is not direct", SGL{{R: slow, Off: 0, Len: 1000}}, 10},
	} {
		frames := make([]byte, 5*size)
		if err := GatherEach(frames, size, header, n, c.sgl, c.off); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		want := make([]byte, 5*size)
		for i := range 5 {
			if err := Gather(want[i*size+header:][:n], c.sgl, c.off+uint64(i*n)); err != nil {
				t.Fatal(err)
			}
		}
		if !bytes.Equal(frames, want) {
			t.Errorf("%s:\n% x, want\n% x", c.name, frames, want)
		}
	}
	if err := GatherEach(make([]byte, 5*size), size, header, n, SGL{{R: r, Len: 5*n - 1}}, 0); err == nil {
		t.Error("a message that ends too early was no error")
	}
	if err := table.Deregister(r); err != nil {
		t.Fatal(err)
	}
	if err := GatherEach(make([]byte, 5*size), size, header, n, SGL{{R: r, Len: 1000}}, 0); err == nil {
		t.Error("a region that is registered no more was read")
	}
}

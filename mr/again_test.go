package mr

import (
	"testing"

	"github.com/goroce/goroce/ib"
)

// again writes to a region that was checked before.
func again(r *Region, key ib.Key, va uint64, p []byte) bool {
	if !Hold(r, key) {
		return false
	}
	defer Release(r)
	return WriteHeld(r, va, p)
}

// TestHold: what is held is written just where CheckRemote, asked again, would let it.
func TestHold(t *testing.T) {
	table := NewTable(8, CountedKeys(counter()))
	pd, err := table.NewPD()
	if err != nil {
		t.Fatal(err)
	}
	const base, size = 0x1000, 64
	mem := make([]byte, size)
	r, err := table.Register(pd, Bytes(mem), base, allRights)
	if err != nil {
		t.Fatal(err)
	}
	slow, err := table.Register(pd, late{Bytes(make([]byte, size))}, base, allRights)
	if err != nil {
		t.Fatal(err)
	}
	p := []byte{1, 2, 3, 4, 5, 6, 7, 8}
	for _, c := range []struct {
		name string
		r    *Region
		key  uint32
		va   uint64
		want bool
	}{
		{"the first bytes", r, uint32(r.Key()), base, true},
		{"the last bytes", r, uint32(r.Key()), base + size - 8, true},
		{"beyond the end", r, uint32(r.Key()), base + size - 7, false},
		{"before the beginning", r, uint32(r.Key()), base - 1, false},
		{"at the end of the address space", r, uint32(r.Key()), ^uint64(3), false},
		{"another key", r, uint32(r.Key()) + 1, base, false},
		{"memory that is not direct", slow, uint32(slow.Key()), base, false},
	} {
		clear(mem)
		if got := again(c.r, ib.Key(c.key), c.va, p); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
		if written := mem[0] == 1 || mem[size-8] == 1; written != c.want {
			t.Errorf("%s: written %v, want %v", c.name, written, c.want)
		}
	}
	if err := table.Deregister(r); err != nil {
		t.Fatal(err)
	}
	clear(mem)
	if again(r, r.Key(), base, p) || mem[0] != 0 {
		t.Error("a region that is registered no more was written")
	}
}

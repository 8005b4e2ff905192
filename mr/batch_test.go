package mr

import (
	"bytes"
	"errors"
	"testing"
)

// vector is slow memory that takes several pieces at once, and counts calls.
type vector struct {
	Memory
	b     []byte
	calls int
	fail  uint64 // offset that cannot be written, 0 for none
}

func (v *vector) Direct() []byte { return nil }

func (v *vector) WriteAt(p []byte, off uint64) error {
	return v.WriteVector([]Piece{{Off: off, B: p}})
}

func (v *vector) WriteVector(pieces []Piece) error {
	v.calls++
	for _, p := range pieces {
		if v.fail != 0 && p.Off == v.fail {
			return FaultBounds
		}
		copy(v.b[p.Off:], p.B)
	}
	return nil
}

// TestBatch: writes that follow each other in one region are one call; others, and
// those beside one that fails, are done by themselves, all in order.
func TestBatch(t *testing.T) {
	table := NewTable(8, CountedKeys(func() uint8 { return 1 }))
	pd, err := table.NewPD()
	if err != nil {
		t.Fatal(err)
	}
	register := func() (*vector, *Region) {
		b := make([]byte, 4096)
		v := &vector{Memory: Bytes(b), b: b}
		r, err := table.Register(pd, v, 0, 0)
		if err != nil {
			t.Fatal(err)
		}
		return v, r
	}
	write := func(r *Region, off uint64, data string) Placement {
		return Placement{Kind: PlaceWrite, R: r, Off: off, Data: []byte(data)}
	}
	a, ra := register()
	b, rb := register()
	add := Placement{Kind: PlaceFetchAdd, R: ra, Off: 64, A: 5}
	list := []Placement{write(ra, 0, "one"), write(ra, 1, "two"), add, add, write(ra, 8, "x"), write(rb, 8, "y"),
		write(rb, 9, "z")}
	var batch Batch
	out := make([]Outcome, len(list))
	batch.Do(list, out)
	for i, o := range out {
		if o.Err != nil || o.Old != map[int]uint64{3: 5}[i] {
			t.Errorf("placement %d: %+v", i, o)
		}
	}
	if a.calls != 2 || b.calls != 1 || !bytes.HasPrefix(a.b, []byte("otwo\x00")) || string(b.b[8:10]) != "yz" {
		t.Errorf("%d and %d calls, %q %q", a.calls, b.calls, a.b[:9], b.b[8:10])
	}

	a.fail = 20
	list = []Placement{write(ra, 16, "a"), write(ra, 20, "b"), write(ra, 24, "c")}
	batch.Do(list, out[:3])
	if out[0].Err != nil || !errors.Is(out[1].Err, FaultBounds) || out[2].Err != nil || a.b[16] != 'a' ||
		a.b[24] != 'c' {
		t.Errorf("%+v", out[:3])
	}

	a.calls = 0
	if err := table.Deregister(ra); err != nil {
		t.Fatal(err)
	}
	batch.Do(list, out[:3])
	if out[0].Err != FaultKey || out[2].Err != FaultKey || a.calls != 0 {
		t.Errorf("deregistered: %+v, %d calls", out[:3], a.calls)
	}
}

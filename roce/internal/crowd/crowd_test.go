package crowd

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/goroce/goroce/ib"
)

// TestModel compares a List with a slice of entries, in the order in which they came.
func TestModel(t *testing.T) {
	type item struct {
		gid ib.GID
		e   *Entry[int]
	}
	rng := rand.New(rand.NewPCG(1, 2))
	var l List[int]
	var model []item
	of := func(gid ib.GID) (all []item) {
		for _, x := range model {
			if x.gid == gid {
				all = append(all, x)
			}
		}
		return all
	}
	remove := func(e *Entry[int]) {
		l.Remove(e)
		model = slices.DeleteFunc(model, func(x item) bool { return x.e == e })
	}
	for i := range 20_000 {
		gid := ib.GID{15: byte(rng.IntN(rng.IntN(12) + 1))}
		if rng.IntN(2+len(model)/50) > 0 && len(model) > 0 {
			remove(model[rng.IntN(len(model))].e)
		} else {
			model = append(model, item{gid, l.Add(gid, i)})
		}
		mine := of(gid)
		if got := l.LenOf(gid); got != len(mine) || l.Len() != len(model) {
			t.Fatalf("step %d: %d entries of the source and %d in all, want %d and %d", i, got, l.Len(), len(mine),
				len(model))
		}
		if len(mine) > 0 && l.OldestOf(gid) != mine[0].e {
			t.Fatalf("step %d: the oldest of the source is %v, want %v", i, l.OldestOf(gid), mine[0].e)
		}
		if e := l.Crowded(); e != nil {
			crowd, most := of(e.source.gid), 0
			for _, x := range model {
				most = max(most, len(of(x.gid)))
			}
			if len(crowd) != most || crowd[0].e != e {
				t.Fatalf("step %d: Crowded is of a source with %d entries, want the oldest of one with %d", i,
					len(crowd), most)
			}
		}
	}
	for e := l.Crowded(); e != nil; e = l.Crowded() {
		remove(e)
	}
	if l.Sources() != 0 || len(model) != 0 {
		t.Errorf("%d sources and %d entries are left, want none", l.Sources(), len(model))
	}
}

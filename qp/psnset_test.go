package qp

import (
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/goroce/goroce/ib"
)

// TestPSNSet: a psnSet does what a map of PSNs does, also around the wrap, and its ranges are as few as they can be.
func TestPSNSet(t *testing.T) {
	for seed := range uint64(100) {
		rng := rand.New(rand.NewPCG(seed, 0))
		base := ib.PSNMask - ib.PSN(rng.IntN(300))
		var s psnSet
		model := map[ib.PSN]bool{}
		for range 300 {
			psn, n := base.Add(rng.IntN(400)), rng.IntN(40)
			before := len(model)
			if rng.IntN(2) == 0 {
				for i := range n {
					model[psn.Add(i)] = true
				}
				if got, want := s.add(psn, n), len(model)-before; got != want {
					t.Fatalf("seed %d: got %d added of %d from %d on, want %d", seed, got, n, psn, want)
				}
			} else {
				for i := range n {
					delete(model, psn.Add(i))
				}
				if got, want := s.remove(psn, n), before-len(model); got != want {
					t.Fatalf("seed %d: got %d removed of %d from %d on, want %d", seed, got, n, psn, want)
				}
			}
			checkPSNs(t, seed, &s, model)
			length, in := s.run(psn, n)
			for i := range length {
				if model[psn.Add(i)] != in {
					t.Fatalf("seed %d: got a run of %d from %d on with %v, want %v at %d", seed, length, psn, in,
						!in, i)
				}
			}
			if length < n && model[psn.Add(length)] == in {
				t.Fatalf("seed %d: got a run of %d from %d on, want a longer one", seed, length, psn)
			}
		}
	}
}

// checkPSNs compares a set with its model.
func checkPSNs(t *testing.T, seed uint64, s *psnSet, model map[ib.PSN]bool) {
	t.Helper()
	have := map[ib.PSN]bool{}
	for i, run := range s.runs {
		for psn := run.from; psn != run.to; psn = psn.Add(1) {
			have[psn] = true
		}
		if i > 0 && !s.runs[i-1].to.Before(run.from) {
			t.Fatalf("seed %d: got ranges %v, want them in order and apart", seed, s.runs)
		}
	}
	if s.n != len(model) || !maps.Equal(have, model) {
		t.Fatalf("seed %d: got %d, %v, want %v", seed, s.n, s.runs, slices.Sorted(maps.Keys(model)))
	}
}

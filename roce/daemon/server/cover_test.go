package server

import (
	"math/rand/v2"
	"testing"
)

// TestCover compares cover with an array of counters.
func TestCover(t *testing.T) {
	const size = 64
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	for range 200 {
		var c cover
		var want [size]int
		var held [][2]uint64
		for range 100 {
			from := rng.Uint64N(size)
			r, n := [2]uint64{from, from + 1 + rng.Uint64N(size-from)}, 1
			if len(held) > 0 && rng.IntN(2) == 0 {
				i := rng.IntN(len(held))
				r, n = held[i], -1
				held = append(held[:i], held[i+1:]...)
			} else {
				held = append(held, r)
			}
			turned := uint64(0)
			for i := r[0]; i < r[1]; i++ {
				before := want[i]
				if want[i] += n; before == 0 || want[i] == 0 {
					turned++
				}
			}
			if got := c.add(r[0], r[1], n); got != turned {
				t.Fatalf("%v, %d: %d bytes turned, want %d; %v", r, n, got, turned, c)
			}
			if len(c) > 2*len(held) {
				t.Fatalf("%d steps for %d ranges, want at most %d: %v", len(c), len(held), 2*len(held), c)
			}
		}
	}
}

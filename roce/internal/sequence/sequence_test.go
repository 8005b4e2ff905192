package sequence

import (
	"math/rand/v2"
	"slices"
	"testing"
)

const bits = 24

func newSequence(seed uint64) *Sequence { return New(rand.New(rand.NewPCG(seed, 0)), bits) }

// TestPeriod: each number is returned once before any is returned again.
func TestPeriod(t *testing.T) {
	for bits := 2; bits <= 17; bits++ {
		s := New(rand.New(rand.NewPCG(1, 0)), bits)
		var order []uint32
		seen := make([]bool, 1<<bits)
		for range seen {
			n := s.Next()
			if n>>bits != 0 || seen[n] {
				t.Fatalf("%d bits: %#x comes again, or is too large; want each once", bits, n)
			}
			seen[n] = true
			order = append(order, n)
		}
		for i, want := range order {
			if n := s.Next(); n != want {
				t.Fatalf("%d bits: the second time, number %d is %#x, not %#x", bits, i, n, want)
			}
		}
	}
}

// TestNoneTwice: no number is repeated. With random numbers about two thousand would be.
func TestNoneTwice(t *testing.T) {
	s := newSequence(1)
	seen := map[uint32]bool{}
	for range 1 << 18 {
		n := s.Next()
		if seen[n] || n>>bits != 0 {
			t.Fatalf("%#x comes again, or is too large; want each number of %d bits once", n, bits)
		}
		seen[n] = true
	}
}

// TestKeys: different keys give different orders, the same key gives the same order, and
// consecutive numbers differ in about half of their bits.
func TestKeys(t *testing.T) {
	take := func(s *Sequence) (list []uint32) {
		for range 1000 {
			list = append(list, s.Next())
		}
		return list
	}
	a, again, b := take(newSequence(1)), take(newSequence(1)), take(newSequence(2))
	if !slices.Equal(a, again) || slices.Equal(a, b) {
		t.Error("the order does not follow from the key")
	}
	for bit := range bits {
		flips := 0
		for i := range a[1:] {
			flips += int((a[i] ^ a[i+1]) >> bit & 1)
		}
		if flips < 400 || flips > 600 { // of 999; the seeds are fixed
			t.Errorf("bit %d changes %d times in 999 steps, want 400 to 600", bit, flips)
		}
	}
}

func BenchmarkNext(b *testing.B) {
	s := newSequence(1)
	for b.Loop() {
		s.Next()
	}
}

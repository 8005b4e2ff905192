package device

import (
	crand "crypto/rand"
	"encoding/binary"
	"math/rand/v2"
)

// Independent streams of random numbers, so that with one seed they do not repeat each other.
const (
	streamCM       = iota // communication IDs, first PSNs, ports
	streamNumbers         // QP numbers, indices of keys
	streamVariants        // variant bytes of keys
)

// newRand returns a source of random numbers that cannot be predicted from earlier ones, or
// with a seed a repeatable source.
func newRand(seed uint64, stream byte) *rand.Rand {
	var key [32]byte
	if seed == 0 {
		_, _ = crand.Read(key[:]) // never fails
	} else {
		// For tests and simulations: keys and PSNs that can be predicted can be forged.
		binary.LittleEndian.PutUint64(key[:], seed)
		key[8] = stream
	}
	return rand.New(rand.NewChaCha8(key))
}

// numbers allocates the numbers of objects of one kind: from 1 on. It reuses freed numbers, oldest first, only when
// more than restNumbers are free. So numbers stay small, and tables that are indexed by them short.
type numbers struct {
	last uint32   // highest number allocated so far
	free []uint32 // freed numbers, oldest first
}

// restNumbers is how many freed numbers are kept back, so that a freed number stays invalid for
// some time.
const restNumbers = 64

func (t *numbers) take() uint32 {
	if len(t.free) <= restNumbers {
		t.last++
		return t.last
	}
	n := t.free[0]
	t.free = t.free[1:]
	return n
}

func (t *numbers) put(n uint32) { t.free = append(t.free, n) }

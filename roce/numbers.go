package roce

import (
	crand "crypto/rand"
	"encoding/binary"
	"math/rand/v2"
)

// What a device draws numbers for: with one seed these are apart.
const (
	streamCM       = iota // communication IDs, first PSNs, ports
	streamNumbers         // QP numbers, indices of keys
	streamVariants        // variant bytes of keys
)

// newRand returns a source of numbers that nobody can guess who sees some of them, or
// with a seed repeatable ones.
func newRand(seed uint64, stream byte) *rand.Rand {
	var key [32]byte
	if seed == 0 {
		_, _ = crand.Read(key[:]) // which does not fail
	} else {
		binary.LittleEndian.PutUint64(key[:], seed)
		key[8] = stream
	}
	return rand.New(rand.NewChaCha8(key))
}

// numbers gives objects of one kind their numbers: from 1 on, those that were
// used before last.
type numbers struct {
	last uint32   // highest that was ever given
	free []uint32 // oldest first
}

// restNumbers is how many numbers rest, so that a stale one names nothing for long.
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

// Package sequence has the order in which numbers of 24 bits are given out that
// strangers should not guess: QP numbers, and the indices of keys.
package sequence

import (
	"crypto/aes"
	"crypto/cipher"
	"math/rand/v2"
)

// Bits is how many bits the numbers have.
const Bits = 24

// Sequence returns all numbers of 24 bits in an order that only a key tells. Each comes
// once before any comes again, so that a number which is not in use any more names nothing
// for long.
//
// It encrypts 0, 1, 2 ... by a Feistel network of as many rounds as NIST SP 800-38G has,
// whose round function is AES.
type Sequence struct {
	block cipher.Block
	next  uint32
}

const (
	rounds = 10
	half   = Bits / 2
	mask   = 1<<half - 1
)

// New returns a sequence whose key comes from rng.
func New(rng *rand.Rand) *Sequence {
	var key [16]byte
	for i := range key {
		key[i] = byte(rng.Uint32())
	}
	block, err := aes.NewCipher(key[:])
	if err != nil {
		panic(err) // the length of the key is right
	}
	return &Sequence{block: block}
}

// Next returns the next number.
func (s *Sequence) Next() uint32 {
	left, right := s.next>>half&mask, s.next&mask
	s.next++
	for round := range rounds {
		left, right = right, left^s.mix(round, right)
	}
	return left<<half | right
}

// mix is the round function.
func (s *Sequence) mix(round int, v uint32) uint32 {
	var b [aes.BlockSize]byte
	b[0], b[1], b[2] = byte(round), byte(v), byte(v>>8)
	s.block.Encrypt(b[:], b[:])
	return (uint32(b[0]) | uint32(b[1])<<8) & mask
}

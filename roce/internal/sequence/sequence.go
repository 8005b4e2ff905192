// Package sequence generates numbers that outsiders must not be able to guess: QP numbers, and
// the indices of keys.
package sequence

import (
	"crypto/aes"
	"crypto/cipher"
	"encoding/binary"
	"math/rand/v2"
)

// Sequence returns all numbers of a given number of bits in an order that a secret key determines.
// Each number is returned once before any is returned again, so that a number which is freed is
// not reused for a long time.
//
// It encrypts 0, 1, 2 ... with a Feistel network that has the structure and the number of rounds
// of FF1 (NIST SP 800-38G) in radix 2. Its round function is AES.
type Sequence struct {
	block cipher.Block
	next  uint32
	bits  [2]int // sizes of the two halves
}

const rounds = 10

// New returns a sequence of numbers of 2 to 32 bits, whose key comes from rng.
func New(rng *rand.Rand, bits int) *Sequence {
	var key [16]byte
	for i := range key {
		key[i] = byte(rng.Uint32())
	}
	block, err := aes.NewCipher(key[:])
	if err != nil {
		panic(err) // cannot happen: the key has a valid length
	}
	return &Sequence{block: block, bits: [2]int{bits / 2, bits - bits/2}}
}

// Next returns the next number.
func (s *Sequence) Next() uint32 {
	a, b := s.next>>s.bits[1]&mask(s.bits[0]), s.next&mask(s.bits[1])
	s.next++
	for round := range rounds {
		a, b = b, (a^s.mix(round, b))&mask(s.bits[round%2])
	}
	return a<<s.bits[1] | b
}

func mask(bits int) uint32 { return 1<<bits - 1 }

// mix is the round function.
func (s *Sequence) mix(round int, v uint32) uint32 {
	var b [aes.BlockSize]byte
	b[0] = byte(round)
	binary.LittleEndian.PutUint32(b[1:], v)
	s.block.Encrypt(b[:], b[:])
	return binary.LittleEndian.Uint32(b[:])
}

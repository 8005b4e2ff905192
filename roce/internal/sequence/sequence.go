// Package sequence has the order in which numbers are given out that strangers should not
// guess: QP numbers, and the indices of keys.
package sequence

import (
	"crypto/aes"
	"crypto/cipher"
	"encoding/binary"
	"math/rand/v2"
)

// Sequence returns all numbers of so many bits in an order that only a key tells. Each comes
// once before any comes again, so that a number which is not in use any more names nothing
// for long.
//
// It encrypts 0, 1, 2 ... by a Feistel network with the shape and the rounds of FF1 (NIST SP
// 800-38G) in radix 2, whose round function is AES.
type Sequence struct {
	block cipher.Block
	next  uint32
	bits  [2]int // of the halves
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
		panic(err) // the length of the key is right
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

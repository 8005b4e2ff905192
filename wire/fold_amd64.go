package wire

import (
	"hash/crc32"
	"math/bits"

	"golang.org/x/sys/cpu"
)

// This file and fold_amd64.s compute CRCs of packets on processors with AVX-512,
// 256 bytes at a time (V. Gopal and others, "Fast CRC Computation for Generic
// Polynomials Using PCLMULQDQ", Intel, 2009). crc32.Update takes 64 at a time, and
// the ICRC was a fifth of what a packet costs.

// canFold is whether the processor has what fold takes.
var canFold = cpu.X86.HasAVX512F && cpu.X86.HasAVX512BW && cpu.X86.HasAVX512VL && cpu.X86.HasAVX512VPCLMULQDQ && cpu.X86.HasBMI2

// foldCRC returns the CRC register, from 0, after b with first, little endian, added to
// its first eight bytes. A register to begin with is added to the first four. The length
// of b is such that foldable says so.
func foldCRC(first uint64, b []byte) uint32 { return fold(&keys, first, b) }

//go:noescape
func fold(k *foldKeys, first uint64, b []byte) uint32

// foldKeys is what fold multiplies with.
type foldKeys struct {
	// blocks and lanes are for the first and the second eight bytes of 16, to take them
	// forward: by 256 bytes, 192, 128 and 64, and from the lanes of a block to the last.
	blocks, lanes [4][2]uint64
	// end reduces 16 bytes to a register: to 8, to 4, and modulo the polynomial.
	end [4]uint64
}

var keys = foldKeys{
	blocks: [4][2]uint64{forward(256), forward(192), forward(128), forward(64)},
	lanes:  [4][2]uint64{forward(48), forward(32), forward(16)},
	end:    [4]uint64{power(96), power(64), quotient(), crc32.IEEE<<1 | 1},
}

func forward(bytes int) [2]uint64 { return [2]uint64{power(8*bytes + 32), power(8*bytes - 32)} }

// power returns x to the n modulo the polynomial, bits reversed as they are in the
// register, and shifted by the one that a product of reversed numbers is short.
func power(n int) uint64 {
	r := uint32(1 << 31)
	for range n {
		r = r>>1 ^ r&1*crc32.IEEE
	}
	return uint64(r) << 1
}

// quotient returns x to the 64 divided by the polynomial, bits reversed.
func quotient() uint64 {
	polynomial := uint64(bits.Reverse32(crc32.IEEE))
	r, q := uint64(1<<32), uint64(0) // what is left of the highest terms; 33 steps
	for range 33 {
		top := r >> 32
		q = q<<1 | top
		r = (r ^ top*(1<<32|polynomial)) << 1
	}
	return bits.Reverse64(q) >> 31
}

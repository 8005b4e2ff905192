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

// fold returns the CRC register, from 0, after b with first, little endian, added to its
// first eight bytes. A register to begin with is added to the first four. The length of
// b is such that foldable says so.
//
//go:noescape
func fold(first uint64, b []byte) uint32

// foldKeys are what the first and the second eight bytes of a lane of 16 are multiplied
// with to take it forward by so many bytes.
var foldKeys = [8][2]uint64{
	foldKey(256), foldKey(192), foldKey(128), foldKey(64),
	foldKey(48), foldKey(32), foldKey(16), {}, // the lanes of a block, to the last
}

func foldKey(bytes int) [2]uint64 { return [2]uint64{power(8*bytes + 32), power(8*bytes - 32)} }

// foldEnd is what reduces 16 bytes to a register.
var foldEnd = [4]uint64{power(96), power(64), quotient(), crc32.IEEE<<1 | 1}

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

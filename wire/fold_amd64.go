package wire

import (
	"hash/crc32"

	"golang.org/x/sys/cpu"
)

// This file and fold_amd64.s compute CRCs of packets on processors with AVX-512,
// 256 bytes at a time (V. Gopal and others, "Fast CRC Computation for Generic
// Polynomials Using PCLMULQDQ", Intel, 2009). crc32.Update takes 64 at a time, and
// the ICRC is a fifth of what a packet costs.

// canFold is whether the processor has what fold takes.
var canFold = cpu.X86.HasAVX512F && cpu.X86.HasAVX512BW && cpu.X86.HasAVX512VL && cpu.X86.HasAVX512VPCLMULQDQ && cpu.X86.HasBMI2

// update advances the CRC register over b, some 64 bytes at least.
func update(crc uint32, b []byte) uint32 {
	if !canFold {
		return ^crc32.Update(^crc, crc32.IEEETable, b)
	}
	for len(b)%4 != 0 {
		crc = crcTable[0][byte(crc)^b[0]] ^ crc>>8
		b = b[1:]
	}
	lo, hi := fold(crc, b)
	return crcLE(crcLE(0, lo), hi)
}

// fold returns 16 bytes, as two little endian numbers, with the CRC from register 0
// that b has from crc. The length of b is a multiple of 4, and not 0.
//
//go:noescape
func fold(crc uint32, b []byte) (lo, hi uint64)

// foldKeys are what the first and the second eight bytes of a lane of 16 are multiplied
// with to take it forward by so many bytes.
var foldKeys = [8][2]uint64{
	foldKey(256), foldKey(192), foldKey(128), foldKey(64),
	foldKey(48), foldKey(32), foldKey(16), {}, // the lanes of a block, to the last
}

func foldKey(bytes int) [2]uint64 { return [2]uint64{power(8*bytes + 32), power(8*bytes - 32)} }

// power returns x to the n modulo the polynomial, bits reversed as they are in the
// register, and shifted by the one that a product of reversed numbers is short.
func power(n int) uint64 {
	r := uint32(1 << 31)
	for range n {
		r = r>>1 ^ r&1*crc32.IEEE
	}
	return uint64(r) << 1
}

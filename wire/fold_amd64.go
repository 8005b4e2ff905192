package wire

import (
	"hash/crc32"
	"math/bits"

	"golang.org/x/sys/cpu"
)

// This file and fold_amd64.s compute CRCs of packets on processors with AVX-512, 256 bytes at a time (V. Gopal and
// others, "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ", Intel, 2009). crc32.Update works on 64 bytes
// at a time; with it the ICRC takes a fifth of the time for a packet.

// canFold is true if the processor has the instructions of fold.
var canFold = cpu.X86.HasAVX512F && cpu.X86.HasAVX512BW && cpu.X86.HasAVX512VL && cpu.X86.HasAVX512VPCLMULQDQ &&
	cpu.X86.HasBMI2

// foldCRC returns the CRC register after b, from register 0, with first (little endian) added to the first eight bytes.
// To begin with another register, add that to the first four bytes. The length of b must be foldable.
func foldCRC(first uint64, b []byte) uint32 { return fold(&keys, first, b) }

//go:noescape
func fold(k *foldKeys, first uint64, b []byte) uint32

// foldShort advances CRC registers over foldMost packets of n bytes each, a multiple of 4 from 8 to shortMost, which
// begin each bytes apart in b. Byte 4 of a packet is taken to be ones.
func foldShort(crcs *[foldMost]uint32, b []byte, each, n int) {
	_ = b[(foldMost-1)*each+n-1]
	foldFour(&keys, crcs, &b[0], each, n)
}

//go:noescape
func foldFour(k *foldKeys, crcs *[foldMost]uint32, b *byte, each, n int)

// foldKeys are the constants that fold multiplies by.
type foldKeys struct {
	// blocks and lanes move the first and the second eight bytes of 16 forward: blocks by 256, 192, 128 and 64 bytes,
	// lanes from each lane of a block to the last.
	blocks, lanes [4][2]uint64
	// end reduces 16 bytes to the register: to 8 bytes, to 4, and modulo the polynomial.
	end [4]uint64
}

var keys = foldKeys{
	blocks: [4][2]uint64{forward(256), forward(192), forward(128), forward(64)},
	lanes:  [4][2]uint64{forward(48), forward(32), forward(16)},
	end:    [4]uint64{power(96), power(64), quotient(), crc32.IEEE<<1 | 1},
}

func forward(bytes int) [2]uint64 { return [2]uint64{power(8*bytes + 32), power(8*bytes - 32)} }

// power returns x^n modulo the polynomial, with the bits reversed as in the register, and shifted by one, because a
// product of two reversed numbers has one bit less.
func power(n int) uint64 {
	r := uint32(1 << 31)
	for range n {
		r = r>>1 ^ r&1*crc32.IEEE
	}
	return uint64(r) << 1
}

// quotient returns x^64 divided by the polynomial, with the bits reversed.
func quotient() uint64 {
	polynomial := uint64(bits.Reverse32(crc32.IEEE))
	r, q := uint64(1<<32), uint64(0) // remainder and quotient; 33 steps
	for range 33 {
		top := r >> 32
		q = q<<1 | top
		r = (r ^ top*(1<<32|polynomial)) << 1
	}
	return bits.Reverse64(q) >> 31
}

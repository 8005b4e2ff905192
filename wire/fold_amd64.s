#include "textflag.h"

// FOLD multiplies acc by keys, which moves it forward by their distance, and adds block.
// It overwrites t.
#define FOLD(keys, block, acc, t) \
	VPCLMULQDQ $0x00, keys, acc, t \
	VPCLMULQDQ $0x11, keys, acc, acc \
	VPTERNLOGD $0x96, block, t, acc

// func fold(k *foldKeys, first uint64, b []byte) uint32
TEXT ·fold(SB), NOSPLIT, $0-44
	MOVQ k+0(FP), DI
	MOVQ first+8(FP), AX
	MOVQ b_base+16(FP), SI
	MOVQ b_len+24(FP), BX

	// Z4, the first block: CX bytes, 8 to 64, behind DX zeros. Bytes that are masked off
	// are not read. AX is added to the first eight.
	LEAQ           -1(BX), CX
	ANDL           $63, CX
	INCL           CX
	MOVL           $64, DX
	SUBL           CX, DX
	MOVQ           $-1, R8
	SHLXQ          DX, R8, R8
	KMOVQ          R8, K1
	SHRL           $2, DX
	MOVL           $1, R8
	SHLXQ          DX, R8, R8
	KMOVW          R8, K2
	ADDL           R8, R8
	KMOVW          R8, K3
	VMOVDQU8.Z     -64(SI)(CX*1), K1, Z4
	VPBROADCASTD.Z AX, K2, Z5
	SHRQ           $32, AX
	VPBROADCASTD   AX, K3, Z5
	VPXORQ         Z5, Z4, Z4
	ADDQ           CX, SI
	SUBQ           CX, BX

	// Z0 to Z3 are the accumulators. As many of the last ones begin with a block as leave
	// a multiple of four blocks; the others begin with zero.
	VPXORQ    Z0, Z0, Z0
	VPXORQ    Z1, Z1, Z1
	VPXORQ    Z2, Z2, Z2
	MOVL      BX, R8
	SHRL      $6, R8
	ANDL      $3, R8
	JZ        one
	CMPL      R8, $2
	JB        two
	JE        three
	VMOVDQA64 Z4, Z0
	VMOVDQU64 (SI), Z1
	VMOVDQU64 64(SI), Z2
	VMOVDQU64 128(SI), Z3
	ADDQ      $192, SI
	JMP       groups

three:
	VMOVDQA64 Z4, Z1
	VMOVDQU64 (SI), Z2
	VMOVDQU64 64(SI), Z3
	ADDQ      $128, SI
	JMP       groups

two:
	VMOVDQA64 Z4, Z2
	VMOVDQU64 (SI), Z3
	ADDQ      $64, SI
	JMP       groups

one:
	VMOVDQA64 Z4, Z3

groups:
	SHRQ            $8, BX
	JZ              end
	VBROADCASTI32X4 0(DI), Z8

group:
	FOLD(Z8, (SI), Z0, Z4)
	FOLD(Z8, 64(SI), Z1, Z5)
	FOLD(Z8, 128(SI), Z2, Z6)
	FOLD(Z8, 192(SI), Z3, Z7)
	ADDQ $256, SI
	DECQ BX
	JNZ  group

end:
	// One block out of four, and one lane out of its four.
	VBROADCASTI32X4 16(DI), Z8
	VBROADCASTI32X4 32(DI), Z9
	VBROADCASTI32X4 48(DI), Z10
	VMOVDQU64       64(DI), Z11
	FOLD(Z8, Z3, Z0, Z4)
	FOLD(Z9, Z0, Z1, Z5)
	FOLD(Z10, Z1, Z2, Z6)
	VEXTRACTI32X4   $3, Z2, X3
	VPCLMULQDQ      $0x00, Z11, Z2, Z4
	VPCLMULQDQ      $0x11, Z11, Z2, Z2
	VPXORQ          Z4, Z2, Z2
	VEXTRACTI64X4   $1, Z2, Y4
	VPXORQ          Y4, Y2, Y2
	VEXTRACTI32X4   $1, Y2, X4
	VPTERNLOGD      $0x96, X4, X3, X2

	// Reduce the 16 bytes to 8, with the four zero bytes that the CRC appends to a message,
	// those to 4, and these modulo the polynomial (Barrett).
	VMOVDQU         128(DI), X5
	VMOVQ           144(DI), X6
	VPCLMULQDQ      $0x00, X5, X2, X4
	VPSRLDQ         $8, X2, X2
	VPXOR           X4, X2, X2
	VPMOVZXDQ       X2, X3
	VPSRLDQ         $4, X2, X2
	VPCLMULQDQ      $0x10, X5, X3, X4
	VPXOR           X4, X2, X2
	VPMOVZXDQ       X2, X3
	VPCLMULQDQ      $0x00, X6, X3, X4
	VPMOVZXDQ       X4, X4
	VMOVQ           152(DI), X6
	VPCLMULQDQ      $0x00, X6, X4, X4
	VPXOR           X4, X2, X2
	VPEXTRD         $1, X2, AX
	VZEROUPPER
	MOVL            AX, ret+40(FP)
	RET

// func foldFour(k *foldKeys, crcs *[foldMost]uint32, b *byte, each, n int)
TEXT ·foldFour(SB), NOSPLIT, $0-40
	MOVQ k+0(FP), DI
	MOVQ crcs+8(FP), R9
	MOVQ b+16(FP), SI
	MOVQ each+24(FP), BX
	MOVQ n+32(FP), CX

	// Z0 to Z3, the packets: CX bytes behind DX zeros. Bytes that are masked off are not read.
	MOVL  $64, DX
	SUBL  CX, DX
	MOVQ  $-1, R8
	SHLXQ DX, R8, R8
	KMOVQ R8, K1
	SUBQ  DX, SI
	SHRL  $2, DX
	MOVL  $1, R8
	SHLXQ DX, R8, R8
	KMOVW R8, K2

	// Z8 has ones in place of byte 4, K3 is the mask of it.
	LEAL       4(DX*4), DX
	MOVL       $1, R8
	SHLXQ      DX, R8, R8
	KMOVQ      R8, K3
	VPTERNLOGD $0xFF, Z8, Z8, Z8

	VMOVDQU8.Z (SI), K1, Z0
	ADDQ       BX, SI
	VMOVDQU8.Z (SI), K1, Z1
	ADDQ       BX, SI
	VMOVDQU8.Z (SI), K1, Z2
	ADDQ       BX, SI
	VMOVDQU8.Z (SI), K1, Z3
	VMOVDQU8   Z8, K3, Z0
	VMOVDQU8   Z8, K3, Z1
	VMOVDQU8   Z8, K3, Z2
	VMOVDQU8   Z8, K3, Z3

	// The registers are added to the first words.
	VPBROADCASTD.Z 0(R9), K2, Z4
	VPBROADCASTD.Z 4(R9), K2, Z5
	VPBROADCASTD.Z 8(R9), K2, Z6
	VPBROADCASTD.Z 12(R9), K2, Z7
	VPXORQ         Z4, Z0, Z0
	VPXORQ         Z5, Z1, Z1
	VPXORQ         Z6, Z2, Z2
	VPXORQ         Z7, Z3, Z3

	// Z0 to Z3, the lanes: lane 0 of all packets, lane 1 and so on.
	VSHUFI32X4 $0x44, Z1, Z0, Z4
	VSHUFI32X4 $0xEE, Z1, Z0, Z5
	VSHUFI32X4 $0x44, Z3, Z2, Z6
	VSHUFI32X4 $0xEE, Z3, Z2, Z7
	VSHUFI32X4 $0x88, Z6, Z4, Z0
	VSHUFI32X4 $0xDD, Z6, Z4, Z1
	VSHUFI32X4 $0x88, Z7, Z5, Z2
	VSHUFI32X4 $0xDD, Z7, Z5, Z3

	// One lane out of four.
	VBROADCASTI32X4 64(DI), Z8
	VBROADCASTI32X4 80(DI), Z9
	VBROADCASTI32X4 96(DI), Z10
	VPCLMULQDQ      $0x00, Z8, Z0, Z4
	VPCLMULQDQ      $0x11, Z8, Z0, Z0
	VPCLMULQDQ      $0x00, Z9, Z1, Z5
	VPCLMULQDQ      $0x11, Z9, Z1, Z1
	VPCLMULQDQ      $0x00, Z10, Z2, Z6
	VPCLMULQDQ      $0x11, Z10, Z2, Z2
	VPTERNLOGD      $0x96, Z4, Z0, Z3
	VPTERNLOGD      $0x96, Z5, Z1, Z3
	VPTERNLOGD      $0x96, Z6, Z2, Z3

	// Reduce each lane as fold does.
	VBROADCASTI32X4 128(DI), Z5
	VBROADCASTI32X4 144(DI), Z6
	MOVL            $0x5555, R8
	KMOVW           R8, K3
	VPCLMULQDQ      $0x00, Z5, Z3, Z4
	VPSRLDQ         $8, Z3, Z2
	VPXORQ          Z4, Z2, Z2
	VPSHUFD.Z       $0x50, Z2, K3, Z3
	VPSRLDQ         $4, Z2, Z2
	VPCLMULQDQ      $0x10, Z5, Z3, Z4
	VPXORQ          Z4, Z2, Z2
	VPSHUFD.Z       $0x50, Z2, K3, Z3
	VPCLMULQDQ      $0x00, Z6, Z3, Z4
	VPSHUFD.Z       $0x50, Z4, K3, Z4
	VPCLMULQDQ      $0x10, Z6, Z4, Z4
	VPXORQ          Z4, Z2, Z2

	// The result is the second word of each lane.
	MOVL       $0x2222, R8
	KMOVW      R8, K3
	VPCOMPRESSD.Z Z2, K3, Z2
	VMOVDQU    X2, (R9)
	VZEROUPPER
	RET

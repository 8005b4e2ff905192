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

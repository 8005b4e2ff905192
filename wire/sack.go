package wire

import (
	"encoding/binary"
	"math/bits"

	"github.com/goroce/goroce/ib"
)

// SACK is a selective acknowledgement: what a responder has received beyond the first PSN that it misses. It is no
// part of the architecture. Its opcode is one of those that IBTA leaves to manufacturers (0xC0 to 0xFF), and only who
// has announced itself gets it. It is a hint: nothing is complete because of it.
//
// The BTH has the PSN that the responder expects, and the payload is:
//
//	0  0            1 byte
//	1  trigger      3 bytes   the PSN whose arrival has made the SACK
//	4  0            4 bytes
//	8  bitmap       0 to 16 words of 8 bytes: bit i of word w is PSN + 1 + 64 w + i
type SACK struct {
	Trigger ib.PSN
	Bitmap  [SACKWords]uint64
}

// Bounds of a SACK.
const (
	SACKWords  = 16
	sackHeader = 8
	MaxSACKLen = sackHeader + 8*SACKWords
)

// Decode decodes the payload of a packet.
func (s *SACK) Decode(b []byte) error {
	if len(b) < sackHeader || len(b) > MaxSACKLen || len(b)%8 != 0 {
		return errSACKLength
	}
	*s = SACK{Trigger: ib.PSN(binary.BigEndian.Uint32(b)) & ib.PSNMask}
	for i := range (len(b) - sackHeader) / 8 {
		s.Bitmap[i] = binary.BigEndian.Uint64(b[sackHeader+8*i:])
	}
	return nil
}

// Append appends the payload to b: words at the end that are 0 are left out.
func (s *SACK) Append(b []byte) []byte {
	b = binary.BigEndian.AppendUint64(b, uint64(s.Trigger&ib.PSNMask)<<32)
	words := SACKWords
	for words > 0 && s.Bitmap[words-1] == 0 {
		words--
	}
	for _, w := range s.Bitmap[:words] {
		b = binary.BigEndian.AppendUint64(b, w)
	}
	return b
}

// Set sets the bit of the i-th PSN after the expected one, counted from 1.
func (s *SACK) Set(i int) {
	if i >= 1 && i <= 64*SACKWords {
		s.Bitmap[(i-1)/64] |= 1 << ((i - 1) % 64)
	}
}

// Run returns the next PSNs that the bitmap has, as their distance from the expected PSN: n of them from the first that
// is at least from. n is 0 if there are no more.
func (s *SACK) Run(from int) (first, n int) {
	at := max(from, 1) - 1
	for at < 64*SACKWords {
		w := s.Bitmap[at/64] >> (at % 64)
		if w == 0 {
			at += 64 - at%64
			continue
		}
		at += bits.TrailingZeros64(w)
		break
	}
	first = at + 1
	for at < 64*SACKWords {
		ones := bits.TrailingZeros64(^(s.Bitmap[at/64] >> (at % 64)))
		at += ones
		if at%64 != 0 || ones == 0 {
			break
		}
	}
	return first, at + 1 - first
}

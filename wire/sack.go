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
//	0  twice        1 byte    SENDs and WRITEs that have arrived twice, modulo 256
//	1  trigger      3 bytes   the PSN whose arrival has made the SACK
//	4  0            1 byte
//	5  first        3 bytes   a PSN behind the expected one
//	8  bitmap       0 to 16 words of 8 bytes: bit i of word w is first + 64 w + i
type SACK struct {
	Twice   uint8
	Trigger ib.PSN
	First   ib.PSN
	Bitmap  [SACKWords]uint64
}

// Bounds of a SACK.
const (
	SACKWords  = 16
	SACKBits   = 64 * SACKWords
	sackHeader = 8
	MaxSACKLen = sackHeader + 8*SACKWords
)

// Decode decodes the payload of a packet.
func (s *SACK) Decode(b []byte) error {
	if len(b) < sackHeader || len(b) > MaxSACKLen || len(b)%8 != 0 {
		return errSACKLength
	}
	*s = SACK{
		Twice:   b[0],
		Trigger: ib.PSN(binary.BigEndian.Uint32(b)) & ib.PSNMask,
		First:   ib.PSN(binary.BigEndian.Uint32(b[4:])) & ib.PSNMask,
	}
	for i := range (len(b) - sackHeader) / 8 {
		s.Bitmap[i] = binary.BigEndian.Uint64(b[sackHeader+8*i:])
	}
	return nil
}

// Append appends the payload to b: words at the end that are 0 are left out.
func (s *SACK) Append(b []byte) []byte {
	b = binary.BigEndian.AppendUint32(b, uint32(s.Twice)<<24|uint32(s.Trigger&ib.PSNMask))
	b = binary.BigEndian.AppendUint32(b, uint32(s.First&ib.PSNMask))
	words := SACKWords
	for words > 0 && s.Bitmap[words-1] == 0 {
		words--
	}
	for _, w := range s.Bitmap[:words] {
		b = binary.BigEndian.AppendUint64(b, w)
	}
	return b
}

// Set sets the bit of a PSN, if the bitmap has one for it.
func (s *SACK) Set(psn ib.PSN) {
	if i := psn.Sub(s.First); i >= 0 && i < SACKBits {
		s.Bitmap[i/64] |= 1 << (i % 64)
	}
}

// Has reports whether psn is in the bitmap.
func (s *SACK) Has(psn ib.PSN) bool {
	i := psn.Sub(s.First)
	return i >= 0 && i < SACKBits && s.Bitmap[i/64]>>(i%64)&1 != 0
}

// Run returns the next PSNs that the bitmap has: n of them from the first that is not before from. n is 0 if there are
// no more.
func (s *SACK) Run(from ib.PSN) (first ib.PSN, n int) {
	at := s.next(max(from.Sub(s.First), 0), 0)
	return s.First.Add(at), s.next(at, ^uint64(0)) - at
}

// next returns the index of the first bit from at on that is set, if flip is 0, or else of the first that is not.
func (s *SACK) next(at int, flip uint64) int {
	for at < SACKBits {
		if w := (s.Bitmap[at/64] ^ flip) >> (at % 64); w != 0 {
			return at + bits.TrailingZeros64(w)
		}
		at += 64 - at%64
	}
	return SACKBits
}

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
//	 0  flags, 0           1 byte
//	 1  buffer level       1 byte    how full the receiver is, 0 to 31
//	 2  0                  1 byte
//	 3  trigger            3 bytes   the PSN whose arrival has made the SACK
//	 6  0                  2 bytes
//	 8  received           4 bytes   packets of the connection that have arrived, modulo 2^32
//	12  marked             4 bytes   of these, those with the ECN mark CE
//	16  bitmap             0 to 16 words of 8 bytes: bit i of word w is PSN + 1 + 64 w + i
type SACK struct {
	Level    uint8
	Trigger  ib.PSN
	Received uint32
	Marked   uint32
	Bitmap   [SACKWords]uint64
}

// Bounds of a SACK.
const (
	SACKWords  = 16
	sackHeader = 16
	MaxSACKLen = sackHeader + 8*SACKWords
)

// Decode decodes the payload of a packet.
func (s *SACK) Decode(b []byte) error {
	if len(b) < sackHeader || len(b) > MaxSACKLen || len(b)%8 != 0 {
		return errSACKLength
	}
	s.Level, s.Trigger = b[1], ib.PSN(binary.BigEndian.Uint32(b[2:]))&ib.PSNMask
	s.Received, s.Marked = binary.BigEndian.Uint32(b[8:]), binary.BigEndian.Uint32(b[12:])
	s.Bitmap = [SACKWords]uint64{}
	for i := range (len(b) - sackHeader) / 8 {
		s.Bitmap[i] = binary.BigEndian.Uint64(b[sackHeader+8*i:])
	}
	return nil
}

// Append appends the payload to b: words at the end that are 0 are left out.
func (s *SACK) Append(b []byte) []byte {
	b = append(b, 0, s.Level)
	b = binary.BigEndian.AppendUint32(b, uint32(s.Trigger&ib.PSNMask))
	b = append(b, 0, 0)
	b = binary.BigEndian.AppendUint32(b, s.Received)
	b = binary.BigEndian.AppendUint32(b, s.Marked)
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

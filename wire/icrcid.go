package wire

import "encoding/binary"

// The ICRC covers the IPv4 identification. A program with a plain UDP socket can neither choose the identification of
// packets that it sends nor see that of packets that it receives. Because the CRC is linear, it can compute what it
// needs nevertheless.
//
// Write the 16 bits of an identification as a polynomial over GF(2). k = 14 + 8 + (frame length - 4) bytes between it
// and the end of the packet are part of the ICRC. So if two packets differ only in their identifications, by d, their
// ICRCs differ by d * x^(8k+32) modulo the CRC's polynomial. Given d, this corrects the ICRC of a packet. Given the
// difference of the ICRCs, multiplying by the inverse power yields d. Of the 2^32 possible differences, 2^16 yield a d
// of 16 bits, so a packet that is corrupted elsewhere is accepted with probability 2^-16.

// SolveID returns the identification with which the ICRC of a frame, from BTH to ICRC, is correct. There is at most
// one. All other fields of o must be known. If o.ID is correct already, SolveID costs no more than Check, so set o.ID
// to the best guess. ok is false if there is no such identification, and always for IPv6, which has no such field.
func (o *Outer) SolveID(frame []byte) (id uint16, ok bool) {
	if len(frame) < BTHLen+ICRCLen || len(frame) > maxUDPPayload || !o.Src.Is4() || o.Twice &&
		2*len(frame) > maxUDPPayload {
		return 0, false
	}
	diff := o.diff(frame)
	if diff == 0 {
		return o.ID, true
	}
	behind := len(frame) + idDistance
	if o.Twice {
		behind += len(frame) - ICRCLen
	}
	d := multiply(diff, shiftBack.at(behind))
	return o.ID ^ polyID(d), d&0xFFFF == 0
}

// Reseal corrects the ICRC of an IPv4 frame, from BTH to ICRC, for another identification. The frame has at most 65,507
// bytes.
func Reseal(frame []byte, oldID, newID uint16) {
	if oldID == newID {
		return
	}
	icrc := frame[len(frame)-ICRCLen:]
	diff := multiply(idPoly(oldID^newID), shiftOn.at(len(frame)+idDistance))
	binary.LittleEndian.PutUint32(icrc, binary.LittleEndian.Uint32(icrc)^diff)
}

// Polynomials modulo the CRC's are stored with their bits reversed, as in the CRC itself: bit 31 is the coefficient of
// x^0, bit 0 that of x^31. In a packet, the first byte and the least significant bit have the highest power.

// idPoly returns the polynomial of an identification.
func idPoly(id uint16) uint32 { return uint32(id&0xFF)<<24 | uint32(id>>8)<<16 }

// polyID is the inverse of idPoly.
func polyID(d uint32) uint16 { return uint16(d>>24) | uint16(d>>16&0xFF)<<8 }

const (
	crcPoly  = 0xEDB88320                // without x^32
	polyOne  = 1 << 31                   // x^0
	polyX8   = 1 << 23                   // x^8
	polyInvX = crcPoly<<1&0xFFFFFFFF | 1 // x^-1: (polynomial - 1) / x

	// idDistance + frame length = k + 4, in bytes.
	idDistance    = 22
	maxUDPPayload = 1<<16 - 1 - IPv4Len - UDPLen
)

// multiply returns a*b modulo the CRC polynomial.
func multiply(a, b uint32) uint32 {
	var r uint32
	for i := 0; i < 32; i++ {
		r ^= b & -(a >> 31)
		a <<= 1
		b = b>>1 ^ crcPoly&-(b&1)
	}
	return r
}

// powers has base^n for n below 2^16, in two tables: for the low and for the high byte of n.
type powers struct{ lo, hi [256]uint32 }

var (
	shiftOn   = makePowers(polyX8)
	shiftBack = makePowers(invX8())
)

func makePowers(base uint32) *powers {
	t := &powers{}
	t.lo[0], t.hi[0] = polyOne, polyOne
	for i := 1; i < 256; i++ {
		t.lo[i] = multiply(t.lo[i-1], base)
	}
	base256 := multiply(t.lo[255], base)
	for i := 1; i < 256; i++ {
		t.hi[i] = multiply(t.hi[i-1], base256)
	}
	return t
}

// invX8 returns x^-8.
func invX8() uint32 {
	p := uint32(polyOne)
	for i := 0; i < 8; i++ {
		p = multiply(p, polyInvX)
	}
	return p
}

// at returns base^n.
func (t *powers) at(n int) uint32 {
	p := t.lo[n&0xFF]
	if n>>8 != 0 {
		p = multiply(p, t.hi[n>>8])
	}
	return p
}

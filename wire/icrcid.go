package wire

import "encoding/binary"

// The ICRC covers the IPv4 identification. A program on a plain UDP socket can
// neither choose the identification of what it sends nor see that of what it
// receives; but the CRC is linear, and that is enough to do without.
//
// Write the 16 bits of an identification as a polynomial d over GF(2). Behind it
// k = 14 + 8 + (frame length - 4) bytes go into the ICRC, so two packets that
// differ by d there, and nowhere else, have ICRCs that differ by d * x^(8k+32)
// modulo the CRC's polynomial. Given d this re-seals a packet; given the
// difference it is solved for d by multiplying with the inverse power. Of the 2^32
// possible differences 2^16 lead to a d of 16 bits, so a packet that is damaged
// elsewhere passes with probability 2^-16.

// SolveID returns the identification that explains the ICRC of a frame, which
// runs from BTH to ICRC, if one does; it is then the only one. All other fields of
// o must be known. Where o.ID is already right nothing is solved and the cost is
// that of Check: set it to the best guess. Not ok for IPv6, which has no such
// field, even if the ICRC is right.
func (o *Outer) SolveID(frame []byte) (id uint16, ok bool) {
	if len(frame) < BTHLen+ICRCLen || len(frame) > maxUDPPayload || !o.Src.Is4() || o.Twice && 2*len(frame) > maxUDPPayload {
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

// Reseal corrects the ICRC of an IPv4 frame, which runs from BTH to ICRC, for a
// change of the identification. A frame is at most 65,507 bytes long.
func Reseal(frame []byte, oldID, newID uint16) {
	if oldID == newID {
		return
	}
	icrc := frame[len(frame)-ICRCLen:]
	diff := multiply(idPoly(oldID^newID), shiftOn.at(len(frame)+idDistance))
	binary.LittleEndian.PutUint32(icrc, binary.LittleEndian.Uint32(icrc)^diff)
}

// Polynomials modulo the CRC's are held with the bits reversed, as in the CRC
// itself: bit 31 is the coefficient of x^0, bit 0 that of x^31. Bytes are sent
// first byte first and least significant bit first, highest power first.

// idPoly returns the polynomial of an identification: powers below 16.
func idPoly(id uint16) uint32 { return uint32(id&0xFF)<<24 | uint32(id>>8)<<16 }

// polyID is the inverse of idPoly.
func polyID(d uint32) uint16 { return uint16(d>>24) | uint16(d>>16&0xFF)<<8 }

const (
	crcPoly  = 0xEDB88320                // without its x^32
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

// powers holds base^n for n below 2^16 in two tables: by the lower and by the
// upper byte of n.
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

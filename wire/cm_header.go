package wire

import (
	"encoding/binary"

	"github.com/goroce/goroce/ib"
)

// Errors of CMHeader.Decode.
var (
	errCMShort     = &HeaderError{"CM header", "36 bytes", ErrShort}
	errCMVersion   = &HeaderError{"CM header", "version 0", ErrVersion}
	errCMIPVersion = &HeaderError{"CM header", "IP version 4 or 6", ErrVersion}
	errCMMapped    = &HeaderError{"CM header", "no IPv4-mapped addresses in IP version 6", ErrAddress}
)

// Decode decodes the header at the start of private data. Byte 0 is the header's version, the upper half of byte 1 the
// IP version. An IPv4 address is in the last four of its 16 bytes; like Linux, Decode ignores the others. It refuses a
// header that is too short or has another version, and one that says IPv6 but has IPv4-mapped addresses.
func (h *CMHeader) Decode(private []byte) error {
	if len(private) < CMHeaderLen {
		return errCMShort
	}
	if private[0] != 0 {
		return errCMVersion
	}
	src, dst := ib.GID(private[4:20]), ib.GID(private[20:36])
	switch private[1] >> 4 {
	case 4:
		mapped := [12]byte{10: 0xFF, 11: 0xFF}
		copy(src[:], mapped[:])
		copy(dst[:], mapped[:])
	case 6:
		if src.Is4() || dst.Is4() {
			return errCMMapped
		}
	default:
		return errCMIPVersion
	}
	*h = CMHeader{Src: src, Dst: dst, SrcPort: binary.BigEndian.Uint16(private[2:])}
	return nil
}

// Put writes the header to the first CMHeaderLen bytes of private, which must have as many. The IP version is that of
// Src.
func (h *CMHeader) Put(private []byte) {
	b := private[:CMHeaderLen]
	clear(b)
	binary.BigEndian.PutUint16(b[2:], h.SrcPort)
	if h.Src.Is4() {
		b[1] = 4 << 4
		copy(b[16:20], h.Src[12:])
		copy(b[32:36], h.Dst[12:])
		return
	}
	b[1] = 6 << 4
	copy(b[4:20], h.Src[:])
	copy(b[20:36], h.Dst[:])
}

// SplitServiceID is the inverse of [ib.PortSpace.ServiceID]. ok is false if the service ID is in none of the port
// spaces of package ib.
func SplitServiceID(id uint64) (space ib.PortSpace, port uint16, ok bool) {
	if id>>32 != 0 {
		return 0, 0, false
	}
	space = ib.PortSpace(id >> 16)
	switch space {
	case ib.PortSpaceIPoIB, ib.PortSpaceTCP, ib.PortSpaceUDP, ib.PortSpaceIB:
		return space, uint16(id), true
	}
	return 0, 0, false
}

package ib

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"github.com/goroce/goroce/ib/internal/seal"
)

// AHAttr is an address vector: where packets go and how (IBTA 11.2.2.1).
type AHAttr struct {
	DGID         GID
	SGIDIndex    int // row of the local GID table to send from
	Port         int // always 1
	TrafficClass uint8
	HopLimit     uint8 // to multicast groups; 0 is taken as 64. To one host the route's is used, 64 by default
	FlowLabel    uint32
}

// AHNum names an address handle of a device in work requests. It is never 0.
type AHNum uint32

// AH is an address handle: a destination of datagrams.
type AH interface {
	seal.Sealed
	Num() AHNum // for SendWR.AH
	Query() (AHAttr, error)
	// Modify changes where requests go. It may or may not apply to requests posted before.
	Modify(AHAttr) error
	// Close ends the handle. Requests that name it and have not been sent fail.
	Close() error
}

// GRHLen is the number of bytes that precede the payload in the buffer of a UD receive: the datagram's global route
// header. If the datagram came over IPv4, they are 20 undefined bytes and the IPv4 header (IBTA A17.4.5.1).
const GRHLen = 40

// AHFromWC returns the address vector with which to answer a datagram (ibv_init_ah_from_wc). wc is the completion of
// its receive, grh the first GRHLen bytes of the buffer, gids the port's GID table. The answer goes to QP wc.SrcQP. The
// hop limit is the default, because what is left of the received datagram's hop limit may not suffice for the way back.
func AHFromWC(gids []GIDEntry, wc *WC, grh []byte) (AHAttr, error) {
	if wc.Flags&WCGRH == 0 || len(grh) < GRHLen {
		return AHAttr{}, &AttrError{"address a reply", "GRH", fmt.Sprintf("%d bytes, flags %#x", len(grh), wc.Flags),
			"the completion of a UD receive and the 40 bytes at the start of its memory", ErrInvalid}
	}
	a := AHAttr{Port: 1}
	var local GID
	switch v4 := grh[20:]; {
	case isIPv4(grh):
		a.TrafficClass = v4[1]
		a.DGID = GIDFromAddr(netip.AddrFrom4([4]byte(v4[12:16])))
		local = GIDFromAddr(netip.AddrFrom4([4]byte(v4[16:20])))
	case grh[0]>>4 == 6:
		word := binary.BigEndian.Uint32(grh)
		a.TrafficClass, a.FlowLabel = uint8(word>>20), word&0xFFFFF
		a.DGID, local = GID(grh[8:24]), GID(grh[24:40])
	default:
		return AHAttr{}, &AttrError{"address a reply", "GRH", fmt.Sprintf("%x", grh[:GRHLen]),
			"an IPv6 header, or an IPv4 header in the last 20 bytes", ErrInvalid}
	}
	// Answer from the address that the datagram was sent to; if that is a multicast group, from the first address of
	// the same family.
	for i := range gids {
		if gids[i].GID == local || local.Addr().IsMulticast() && gids[i].GID.Is4() == local.Is4() {
			a.SGIDIndex = gids[i].Index
			return a, nil
		}
	}
	return AHAttr{}, &AttrError{"address a reply", "destination GID", local.Addr(), "an address of the local GID table",
		ErrInvalid}
}

// isIPv4 reports whether a GRH is that of a datagram over IPv4. The bytes before an IPv4 header are undefined, and an
// IPv6 address may have a byte that looks like the first of an IPv4 header: then the header checksum decides, as in
// rdma-core.
func isIPv4(grh []byte) bool {
	header := grh[20:GRHLen]
	if header[0] != 0x45 {
		return false
	}
	if grh[0]>>4 != 6 {
		return true
	}
	var sum uint32
	for i := 0; i < len(header); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(header[i:]))
	}
	return sum>>16+sum&0xFFFF == 0xFFFF
}

package wire

import (
	"encoding/binary"
	"slices"

	"github.com/goroce/goroce/ib"
)

// Lengths of the outer headers, and other constants.
const (
	EtherLen = 14
	VLANLen  = 4
	IPv4Len  = 20
	IPv6Len  = 40
	UDPLen   = 8

	// Port is the UDP destination port of RoCEv2 (A17.3.2.2).
	Port = 4791

	protoUDP   = 17
	flagDF     = 0x4000
	fragMask   = 0xBFFF // reserved flag, MF and fragment offset
	ipv4VerIHL = 0x45
)

// Outer has the fields of the IP and UDP headers. The packet is IPv4 if Src is an IPv4-mapped GID; then Dst must be
// one, too.
//
// Everything else is fixed: IPv4 without options (CA17-3) and fragments, IPv6 without extension headers, lengths as the
// transport packet needs them.
type Outer struct {
	Src, Dst         ib.GID
	SrcPort, DstPort uint16
	TrafficClass     uint8  // IPv4: type of service
	HopLimit         uint8  // IPv4: time to live
	FlowLabel        uint32 // IPv6 only, 20 bits
	ID               uint16 // IPv4 only: identification
	NoDF             bool   // IPv4 only: "don't fragment" is not set, against CA17-7; receivers accept it

	// Twice makes the ICRC functions process BTH and extension headers once more, unmasked, after the packet. rdma_rxe
	// does so for FLUSH, because its table of opcodes (rxe_opcode.c) does not say where the payload begins.
	Twice bool
}

// Len returns the length of the IP and UDP headers: 28 or 48 bytes.
func (o *Outer) Len() int {
	if o.Src.Is4() {
		return IPv4Len + UDPLen
	}
	return IPv6Len + UDPLen
}

// PutGRH writes the 40 bytes that precede the payload in the buffer of a UD receive: the IP header of a packet with
// transportLen bytes from BTH to ICRC. An IPv4 header is in the last 20 bytes, after zeros (A17.4.5.1).
func (o *Outer) PutGRH(grh *[ib.GRHLen]byte, transportLen int) {
	if o.Src.Is4() {
		clear(grh[:IPv6Len-IPv4Len])
		o.putIPv4(grh[IPv6Len-IPv4Len:], IPv4Len+UDPLen+transportLen)
		return
	}
	o.putIPv6(grh[:], UDPLen+transportLen)
}

// AppendHeaders appends IP and UDP headers for a transport packet of transportLen bytes, from BTH to ICRC, to b. The
// UDP checksum is 0, as from rdma_rxe and NICs: the ICRC covers more.
func (o *Outer) AppendHeaders(b []byte, transportLen int) []byte {
	at, n := len(b), o.Len()
	b = slices.Grow(b, n)[:at+n]
	ip, udp := b[at:at+n-UDPLen], b[at+n-UDPLen:]
	if len(ip) == IPv4Len {
		o.putIPv4(ip, n+transportLen)
	} else {
		o.putIPv6(ip, UDPLen+transportLen)
	}
	binary.BigEndian.PutUint16(udp, o.SrcPort)
	binary.BigEndian.PutUint16(udp[2:], o.DstPort)
	binary.BigEndian.PutUint16(udp[4:], uint16(UDPLen+transportLen))
	binary.BigEndian.PutUint16(udp[6:], 0)
	return b
}

// putIPv4 writes an IPv4 header (RFC 791).
func (o *Outer) putIPv4(b []byte, totalLen int) {
	_ = b[IPv4Len-1]
	b[0] = ipv4VerIHL
	b[1] = o.TrafficClass
	binary.BigEndian.PutUint16(b[2:], uint16(totalLen))
	binary.BigEndian.PutUint16(b[4:], o.ID)
	frag := uint16(flagDF)
	if o.NoDF {
		frag = 0
	}
	binary.BigEndian.PutUint16(b[6:], frag)
	b[8] = o.HopLimit
	b[9] = protoUDP
	binary.BigEndian.PutUint16(b[10:], 0)
	copy(b[12:16], o.Src[12:])
	copy(b[16:20], o.Dst[12:])
	binary.BigEndian.PutUint16(b[10:], ^sum16(0, b[:IPv4Len]))
}

// putIPv6 writes an IPv6 header (RFC 8200).
func (o *Outer) putIPv6(b []byte, payloadLen int) {
	_ = b[IPv6Len-1]
	binary.BigEndian.PutUint32(b, 6<<28|uint32(o.TrafficClass)<<20|o.FlowLabel&0xFFFFF)
	binary.BigEndian.PutUint16(b[4:], uint16(payloadLen))
	b[6] = protoUDP
	b[7] = o.HopLimit
	copy(b[8:24], o.Src[:])
	copy(b[24:40], o.Dst[:])
}

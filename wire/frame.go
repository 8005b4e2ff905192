package wire

import (
	"encoding/binary"
	"math/bits"
	"slices"

	"github.com/goroce/goroce/ib"
)

// EtherTypes.
const (
	etherIPv4 = 0x0800
	etherIPv6 = 0x86DD
	etherVLAN = 0x8100
)

// Frame is a whole packet, with its Ethernet header, as packet sockets, XDP and captures have it.
type Frame struct {
	EtherDst, EtherSrc [6]byte
	VLAN               uint16 // with HasVLAN: priority, DEI and VLAN number
	HasVLAN            bool

	Outer     Outer
	Transport []byte // from BTH to ICRC

	// PartialUDPSum makes Decode and DecodeIP accept any UDP checksum. Set it for packets that have not left the
	// machine: the kernel delivers them with an incomplete checksum, which a NIC would have completed.
	PartialUDPSum bool
}

// Decode decodes a frame that begins with its Ethernet header. Transport is then a part of b. Bytes after the IP packet
// (padding of short frames) are ignored. The ICRC is not checked: see Outer.Check. After an error the fields are
// undefined.
func (f *Frame) Decode(b []byte) error {
	if len(b) < EtherLen {
		return errEtherShort
	}
	f.EtherDst, f.EtherSrc = [6]byte(b), [6]byte(b[6:])
	typ := binary.BigEndian.Uint16(b[12:])
	b = b[EtherLen:]
	if f.HasVLAN = typ == etherVLAN; f.HasVLAN {
		if len(b) < VLANLen {
			return errEtherShort
		}
		f.VLAN = binary.BigEndian.Uint16(b)
		typ = binary.BigEndian.Uint16(b[2:])
		b = b[VLANLen:]
	}
	switch typ {
	case etherIPv4:
		return f.decodeIP(b, 4)
	case etherIPv6:
		return f.decodeIP(b, 6)
	}
	return errEtherType
}

// DecodeIP decodes a frame that begins with its IP header. It leaves the Ethernet fields alone.
func (f *Frame) DecodeIP(b []byte) error {
	if len(b) == 0 {
		return errIPShort
	}
	return f.decodeIP(b, b[0]>>4)
}

// decodeIP decodes a packet of the given IP version.
func (f *Frame) decodeIP(b []byte, version byte) (err error) {
	switch {
	case len(b) == 0:
		return errIPShort
	case b[0]>>4 != version:
		return errIPVersion
	case version == 4:
		b, err = f.Outer.decodeIPv4(b)
	case version == 6:
		b, err = f.Outer.decodeIPv6(b)
	default:
		return errIPVersion
	}
	if err != nil {
		return err
	}
	return f.decodeUDP(b)
}

// decodeIPv4 decodes an IPv4 header and returns its payload. Headers that RoCEv2 does not allow must be dropped
// (CA17-24). A header without "don't fragment" is accepted nevertheless, as in rdma_rxe, because the ICRC can still be
// computed.
func (o *Outer) decodeIPv4(b []byte) ([]byte, error) {
	if len(b) < IPv4Len {
		return nil, errIPv4Short
	}
	total := int(binary.BigEndian.Uint16(b[2:]))
	frag := binary.BigEndian.Uint16(b[6:])
	switch {
	case b[0]&0xF < IPv4Len/4:
		return nil, errIPv4IHL
	case b[0]&0xF > IPv4Len/4:
		return nil, errIPv4Options
	case sum16(0, b[:IPv4Len]) != 0xFFFF:
		return nil, errIPv4Sum
	case total < IPv4Len || total > len(b):
		return nil, errIPv4Length
	case frag&fragMask != 0:
		return nil, errIPv4Fragment
	case b[9] != protoUDP:
		return nil, errIPv4Protocol
	}
	o.TrafficClass, o.HopLimit, o.FlowLabel = b[1], b[8], 0
	o.ID = binary.BigEndian.Uint16(b[4:])
	o.NoDF = frag&flagDF == 0
	o.Src, o.Dst = mapped([4]byte(b[12:])), mapped([4]byte(b[16:]))
	return b[IPv4Len:total], nil
}

// mapped returns the GID of an IPv4 address.
func mapped(a [4]byte) ib.GID {
	return ib.GID{10: 0xFF, 11: 0xFF, 12: a[0], 13: a[1], 14: a[2], 15: a[3]}
}

// decodeIPv6 decodes an IPv6 header and returns its payload. An IPv4-mapped address is refused: it would be taken for
// IPv4 later, and no sender may use one (RFC 4942, 2.2).
func (o *Outer) decodeIPv6(b []byte) ([]byte, error) {
	if len(b) < IPv6Len {
		return nil, errIPv6Short
	}
	n := int(binary.BigEndian.Uint16(b[4:]))
	if n > len(b)-IPv6Len {
		return nil, errIPv6Length
	}
	if b[6] != protoUDP {
		return nil, errIPv6Next
	}
	v := binary.BigEndian.Uint32(b)
	o.TrafficClass, o.FlowLabel, o.HopLimit = uint8(v>>20), v&0xFFFFF, b[7]
	o.ID, o.NoDF = 0, false
	o.Src, o.Dst = ib.GID(b[8:24]), ib.GID(b[24:40])
	if o.Src.Is4() || o.Dst.Is4() {
		return nil, errIPv6Mapped
	}
	return b[IPv6Len : IPv6Len+n], nil
}

// decodeUDP decodes the UDP header at the start of b, which ends where the IP packet ends.
func (f *Frame) decodeUDP(b []byte) error {
	if len(b) < UDPLen+BTHLen+ICRCLen {
		return errUDPShort
	}
	o := &f.Outer
	o.SrcPort = binary.BigEndian.Uint16(b)
	o.DstPort = binary.BigEndian.Uint16(b[2:])
	if o.DstPort != Port {
		return errUDPPort
	}
	if int(binary.BigEndian.Uint16(b[4:])) != len(b) {
		return errUDPLength
	}
	if b[6]|b[7] != 0 && !f.PartialUDPSum && o.udpSum(b) != 0xFFFF {
		return errUDPSum
	}
	f.Transport = b[UDPLen:len(b):len(b)]
	return nil
}

// udpSum returns the sum over what the UDP checksum covers (RFC 768, RFC 8200 8.1), including the checksum itself:
// 0xFFFF if that is right. Over IPv4 the upper bytes of mapped addresses do not belong to it, but each adds 0xFFFF,
// which is 0 in one's complement.
func (o *Outer) udpSum(udp []byte) uint16 {
	sum := uint64(protoUDP + len(udp))
	sum += uint64(sum16(0, o.Src[:])) + uint64(sum16(0, o.Dst[:]))
	return sum16(sum, udp)
}

// sum16 returns the one's complement sum of the big-endian 16-bit words of b and of sum, the Internet checksum (RFC
// 1071).
func sum16(sum uint64, b []byte) uint16 {
	var carry uint64
	for ; len(b) >= 8; b = b[8:] {
		sum, carry = bits.Add64(sum, binary.BigEndian.Uint64(b), carry)
	}
	var tail [8]byte
	copy(tail[:], b)
	sum, carry = bits.Add64(sum, binary.BigEndian.Uint64(tail[:]), carry)
	sum, carry = bits.Add64(sum, 0, carry)
	sum += carry
	sum = sum>>32 + sum&0xFFFFFFFF
	sum = sum>>32 + sum&0xFFFFFFFF
	sum = sum>>16 + sum&0xFFFF
	sum = sum>>16 + sum&0xFFFF
	return uint16(sum>>16 + sum&0xFFFF)
}

// AppendHeaders appends Ethernet, IP and UDP headers for a transport packet of
// transportLen bytes (BTH to ICRC) to b.
func (f *Frame) AppendHeaders(b []byte, transportLen int) []byte {
	b = slices.Grow(b, EtherLen+VLANLen+IPv6Len+UDPLen)
	b = append(b, f.EtherDst[:]...)
	b = append(b, f.EtherSrc[:]...)
	if f.HasVLAN {
		b = binary.BigEndian.AppendUint16(b, etherVLAN)
		b = binary.BigEndian.AppendUint16(b, f.VLAN)
	}
	typ := uint16(etherIPv6)
	if f.Outer.Src.Is4() {
		typ = etherIPv4
	}
	b = binary.BigEndian.AppendUint16(b, typ)
	return f.Outer.AppendHeaders(b, transportLen)
}

package packet

import (
	"encoding/binary"

	"golang.org/x/sys/unix"

	"github.com/goroce/goroce/wire"
)

// Offsets in struct virtio_net_hdr (linux/virtio_net.h), which precedes each frame because of PACKET_VNET_HDR. It is in
// host byte order.
const (
	vnetFlags      = 0
	vnetGSOType    = 1
	vnetHeaders    = 2 // length of the headers of a segment
	vnetGSOSize    = 4 // length of the payload of a segment
	vnetCsumStart  = 6
	vnetCsumOffset = 8
	vnetLen        = 10

	offUDPSum = 6 // in a UDP header
)

// segment makes the kernel, or the NIC, cut a packet into segments of size bytes. headers is a zeroed virtio_net_hdr
// and the headers of a packet with n bytes from the BTH on. The segments get IPv4 identifications from the packet's on
// (inet_gso_segment) and complete UDP checksums: the kernel refuses segmentation without NEEDS_CSUM.
func segment(headers []byte, o *wire.Outer, size, n int) {
	headers[vnetFlags], headers[vnetGSOType] = unix.VIRTIO_NET_HDR_F_NEEDS_CSUM, unix.VIRTIO_NET_HDR_GSO_UDP_L4
	udp := len(headers) - wire.UDPLen
	binary.NativeEndian.PutUint16(headers[vnetHeaders:], uint16(len(headers)-vnetLen))
	binary.NativeEndian.PutUint16(headers[vnetGSOSize:], uint16(size))
	binary.NativeEndian.PutUint16(headers[vnetCsumStart:], uint16(udp-vnetLen))
	binary.NativeEndian.PutUint16(headers[vnetCsumOffset:], offUDPSum)
	binary.BigEndian.PutUint16(headers[udp+offUDPSum:], pseudoSum(o, wire.UDPLen+n))
}

// pseudoSum returns the sum of the pseudo header of a UDP packet (RFC 768, RFC 8200 8.1), to which the kernel or the
// NIC adds the rest of the checksum. The upper bytes of mapped addresses, which do not belong to it for IPv4, add up to
// zero (RFC 1071).
func pseudoSum(o *wire.Outer, udpLen int) uint16 {
	sum := uint32(unix.IPPROTO_UDP + udpLen)
	for i := 0; i < len(o.Src); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(o.Src[i:])) + uint32(binary.BigEndian.Uint16(o.Dst[i:]))
	}
	sum = sum>>16 + sum&0xFFFF
	return uint16(sum>>16 + sum)
}

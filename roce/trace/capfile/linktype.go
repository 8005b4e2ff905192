package capfile

import (
	"encoding/binary"
	"fmt"
)

// LinkType is the kind of header at the start of a captured packet. The numbers are those of
// www.tcpdump.org/linktypes.html.
type LinkType uint16

// Link types of RoCE packets.
const (
	Null     LinkType = 0 // BSD loopback: address family in host order
	Ethernet LinkType = 1
	RawBSD   LinkType = 12 // IP, as some systems number it
	RawOpen  LinkType = 14
	Raw      LinkType = 101
	SLL      LinkType = 113 // Linux "cooked"
	IPv4     LinkType = 228
	IPv6     LinkType = 229
	SLL2     LinkType = 276 // Linux "cooked", version 2: tcpdump -i any
)

const (
	nullLen = 4
	sllLen  = 16
	sll2Len = 20

	etherIPv4 = 0x0800
	etherIPv6 = 0x86DD
)

// String returns the name in the list of link types.
func (t LinkType) String() string {
	switch t {
	case Null:
		return "NULL"
	case Ethernet:
		return "ETHERNET"
	case RawBSD, RawOpen, Raw:
		return "RAW"
	case SLL:
		return "LINUX_SLL"
	case SLL2:
		return "LINUX_SLL2"
	case IPv4:
		return "IPV4"
	case IPv6:
		return "IPV6"
	}
	return fmt.Sprintf("LinkType(%d)", uint16(t))
}

// Known reports whether the link type is Ethernet or can be decoded by IP.
func (t LinkType) Known() bool {
	switch t {
	case Null, Ethernet, RawBSD, RawOpen, Raw, SLL, SLL2, IPv4, IPv6:
		return true
	}
	return false
}

// direction returns what the header of a captured packet says of its direction.
func (t LinkType) direction(b []byte) Direction {
	const outgoing = 4 // LINUX_SLL_OUTGOING
	at, size := 1, sllLen
	switch t {
	case SLL:
	case SLL2:
		at, size = 10, sll2Len
	default:
		return DirUnknown
	}
	switch {
	case len(b) < size:
		return DirUnknown
	case b[at] == outgoing:
		return Sent
	}
	return Received
}

// IP returns the IP packet in a captured packet of a known link type other than Ethernet. ok is false if it contains
// something else.
func (t LinkType) IP(b []byte) (ip []byte, ok bool) {
	protocol := uint16(etherIPv4)
	switch t {
	case RawBSD, RawOpen, Raw, IPv4, IPv6:
		ip = b
	case Null:
		// Byte order and value of the family depend on the capturing system; the version in the IP header suffices.
		if len(b) >= nullLen {
			ip = b[nullLen:]
		}
	case SLL:
		if len(b) >= sllLen {
			protocol, ip = binary.BigEndian.Uint16(b[14:]), b[sllLen:]
		}
	case SLL2:
		if len(b) >= sll2Len {
			protocol, ip = binary.BigEndian.Uint16(b), b[sll2Len:]
		}
	}
	return ip, len(ip) > 0 && (protocol == etherIPv4 || protocol == etherIPv6)
}

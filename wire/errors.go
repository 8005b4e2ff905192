package wire

import "errors"

// Sentinels for errors.Is. Decoders wrap them in a HeaderError.
var (
	ErrShort    = errors.New("too short")
	ErrLength   = errors.New("length disagrees")
	ErrOpcode   = errors.New("unknown opcode")
	ErrVersion  = errors.New("unknown version")
	ErrPad      = errors.New("bad pad count")
	ErrPayload  = errors.New("payload size not allowed for the opcode")
	ErrProtocol = errors.New("not RoCEv2")
	ErrChecksum = errors.New("bad checksum")
	ErrFragment = errors.New("fragment")
	ErrOptions  = errors.New("options or extension headers")
	ErrAddress  = errors.New("bad address")
)

// HeaderError says which header of a packet was refused, and why. All values that this package returns are allocated
// once, at start-up.
type HeaderError struct {
	Header string // "BTH", "IPv4" ...
	Want   string // what is allowed
	Err    error  // one of the sentinels
}

func (e *HeaderError) Error() string { return e.Header + ": " + e.Err.Error() + ": want " + e.Want }

// Unwrap returns the sentinel.
func (e *HeaderError) Unwrap() error { return e.Err }

// Errors of Packet.Decode.
var (
	errBTHShort     = &HeaderError{"BTH", "12 bytes", ErrShort}
	errBTHOpcode    = &HeaderError{"BTH", "an opcode of RC, UC, UD or XRC, CNP, or SACK", ErrOpcode}
	errBTHVersion   = &HeaderError{"BTH", "transport header version 0", ErrVersion}
	errExtShort     = &HeaderError{"extension headers", "all that the opcode calls for", ErrShort}
	errSACKLength   = &HeaderError{"SACK", "8 bytes and up to 16 words of 8 bytes", ErrLength}
	errPadAlign     = &HeaderError{"payload", "payload and pad together a multiple of 4 bytes", ErrPad}
	errPadCount     = &HeaderError{"payload", "no more pad than there are bytes", ErrPad}
	errPayloadNone  = &HeaderError{"payload", "none after this opcode", ErrPayload}
	errPayloadFixed = &HeaderError{"payload", "8 bytes after ATOMIC WRITE, 16 after CNP", ErrPayload}
	errPayloadLong  = &HeaderError{"payload", "at most 4096 bytes, the largest path MTU", ErrPayload}
)

// Errors of Frame.Decode and Frame.DecodeIP.
var (
	errEtherShort   = &HeaderError{"Ethernet", "14 bytes, 18 with a VLAN tag", ErrShort}
	errEtherType    = &HeaderError{"Ethernet", "EtherType IPv4 or IPv6, after at most one 802.1Q tag", ErrProtocol}
	errIPShort      = &HeaderError{"IP", "a version nibble", ErrShort}
	errIPVersion    = &HeaderError{"IP", "version 4 or 6, as the EtherType says", ErrVersion}
	errIPv4Short    = &HeaderError{"IPv4", "20 bytes of header", ErrShort}
	errIPv4IHL      = &HeaderError{"IPv4", "header length 5", ErrLength}
	errIPv4Options  = &HeaderError{"IPv4", "no options", ErrOptions}
	errIPv4Sum      = &HeaderError{"IPv4", "the header checksum of these bytes", ErrChecksum}
	errIPv4Length   = &HeaderError{"IPv4", "total length within the frame", ErrLength}
	errIPv4Fragment = &HeaderError{"IPv4", "a whole datagram: no reserved flag, no MF, offset 0", ErrFragment}
	errIPv4Protocol = &HeaderError{"IPv4", "protocol 17, UDP", ErrProtocol}
	errIPv6Short    = &HeaderError{"IPv6", "40 bytes of header", ErrShort}
	errIPv6Length   = &HeaderError{"IPv6", "payload length within the frame", ErrLength}
	errIPv6Next     = &HeaderError{"IPv6", "next header 17, UDP", ErrOptions}
	errIPv6Mapped   = &HeaderError{"IPv6", "no IPv4-mapped addresses", ErrAddress}
	errUDPShort     = &HeaderError{"UDP", "8 bytes of header, then BTH and ICRC", ErrShort}
	errUDPLength    = &HeaderError{"UDP", "the length that the IP header leaves", ErrLength}
	errUDPPort      = &HeaderError{"UDP", "destination port 4791", ErrProtocol}
	errUDPSum       = &HeaderError{"UDP", "checksum 0, or that of these bytes", ErrChecksum}
)

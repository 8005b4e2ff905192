package wire

import (
	"encoding/binary"
	"hash/crc32"
	"math/bits"
)

// The invariant CRC (IBTA 7.8.1, A17.3.3) is the Ethernet CRC-32 of the packet from the IP header to the last byte of
// pad. Fields that routers change are replaced by ones. Eight bytes of ones come first, in place of InfiniBand's local
// route header, which Ethernet does not have.
//   - IPv4: type of service, time to live, header checksum
//   - IPv6: traffic class, flow label, hop limit
//   - UDP: checksum
//   - BTH: byte 4, which has FECN, BECN and six reserved bits
//
// It is appended to the packet, least significant byte first.

// ICRCLen is the length of the ICRC in bytes.
const ICRCLen = 4

// ICRC returns the invariant CRC of a packet with these outer headers. transport is the packet from the BTH to the last
// byte of pad, at least BTHLen bytes.
func (o *Outer) ICRC(transport []byte) uint32 {
	crc := o.Prefix(len(transport)+ICRCLen).ICRC(o.ID, transport)
	if o.Twice {
		return crc32.Update(crc, crc32.IEEETable, transport)
	}
	return crc
}

// Prefix is the part of the ICRC that depends on the outer headers. It is computed once for a run of frames of one
// length, which differ only in the IPv4 identification.
type Prefix struct {
	crc uint32 // register after the headers, with identification 0
	v4  bool
}

// Prefix returns the prefix of frames of n bytes, from BTH to ICRC. It ignores ID and Twice.
func (o *Outer) Prefix(n int) Prefix { return Prefix{o.crcHeaders(uint32(n)), o.Src.Is4()} }

// ICRC is Outer.ICRC for a packet with the identification id.
func (p Prefix) ICRC(id uint16, transport []byte) uint32 {
	crc := p.crc
	if p.v4 {
		crc ^= idTable[0][id>>8] ^ idTable[1][id&0xFF]
	}
	if canFold && foldable(len(transport)) {
		return ^foldCRC(uint64(^transport[4])<<32|uint64(crc), transport) // ones in place of byte 4
	}
	crc = crc8(crc, binary.BigEndian.Uint64(transport)|bthMask)
	crc = crc4(crc, binary.BigEndian.Uint32(transport[8:]))
	b := transport[BTHLen:]
	if len(b) >= crcLong {
		return crc32.Update(^crc, crc32.IEEETable, b)
	}
	for ; len(b) >= 8; b = b[8:] {
		crc = crc8(crc, binary.BigEndian.Uint64(b))
	}
	for _, c := range b {
		crc = crcTable[0][byte(crc)^c] ^ crc>>8
	}
	return ^crc
}

// Seal writes the ICRC into the last four bytes of a frame, which must have the length of the prefix.
func (p Prefix) Seal(id uint16, frame []byte) {
	n := len(frame) - ICRCLen
	binary.LittleEndian.PutUint32(frame[n:], p.ICRC(id, frame[:n]))
}

// Check reports whether a frame has the correct ICRC. The frame must have the length of the prefix, at least
// BTHLen+ICRCLen.
func (p Prefix) Check(id uint16, frame []byte) bool {
	n := len(frame) - ICRCLen
	return binary.LittleEndian.Uint32(frame[n:]) == p.ICRC(id, frame[:n])
}

// SealRun seals the frames of size bytes in buf, which must be the length of the prefix. The first has the
// identification id, each other one that of the one before it plus step.
func (p Prefix) SealRun(id, step uint16, buf []byte, size int) {
	for ; foldsShort(buf, size); buf, id = buf[foldMost*size:], id+foldMost*step {
		var crcs [foldMost]uint32
		p.registers(&crcs, id, step)
		foldShort(&crcs, buf, size, size-ICRCLen)
		for i, crc := range &crcs {
			binary.LittleEndian.PutUint32(buf[(i+1)*size-ICRCLen:], ^crc)
		}
	}
	for ; len(buf) >= size; buf, id = buf[size:], id+step {
		p.Seal(id, buf[:size])
	}
}

// CheckRun returns how many of the first frames of size bytes in buf have the correct ICRC. The size must be the length
// of the prefix, at least BTHLen+ICRCLen. The identifications are id and those that follow it.
func (p Prefix) CheckRun(id uint16, buf []byte, size int) (n int) {
	for ; foldsShort(buf, size); buf = buf[foldMost*size:] {
		var crcs [foldMost]uint32
		p.registers(&crcs, id+uint16(n), 1)
		foldShort(&crcs, buf, size, size-ICRCLen)
		for i, crc := range &crcs {
			if binary.LittleEndian.Uint32(buf[(i+1)*size-ICRCLen:]) != ^crc {
				return n
			}
			n++
		}
	}
	for ; len(buf) >= size && p.Check(id+uint16(n), buf[:size]); buf = buf[size:] {
		n++
	}
	return n
}

const (
	foldMost  = 4  // packets that foldShort takes
	shortMost = 64 // and the bytes that each may have
)

// foldsShort reports whether the first frames of buf are for foldShort.
func foldsShort(buf []byte, size int) bool {
	return canFold && size <= shortMost+ICRCLen && size%4 == 0 && len(buf) >= foldMost*size
}

// registers sets crcs to the CRC registers after the outer headers of frames whose identifications go up by step.
func (p Prefix) registers(crcs *[foldMost]uint32, id, step uint16) {
	for i := range crcs {
		crcs[i] = p.crc
		if p.v4 {
			crcs[i] ^= idTable[0][id>>8] ^ idTable[1][id&0xFF]
		}
		id += step
	}
}

// Seal writes the ICRC into the last four bytes of a frame, which is a packet from BTH to ICRC.
func (o *Outer) Seal(frame []byte) {
	n := len(frame) - ICRCLen
	binary.LittleEndian.PutUint32(frame[n:], o.ICRC(frame[:n]))
}

// Check reports whether a frame, from BTH to ICRC, has the correct ICRC.
func (o *Outer) Check(frame []byte) bool {
	return len(frame) >= BTHLen+ICRCLen && o.diff(frame) == 0
}

// diff returns the ICRC of the frame XOR the correct one.
func (o *Outer) diff(frame []byte) uint32 {
	n := len(frame) - ICRCLen
	return binary.LittleEndian.Uint32(frame[n:]) ^ o.ICRC(frame[:n])
}

const (
	// icrcSeed is the CRC register after the eight bytes of ones.
	icrcSeed = 0xDEBB20E3

	// bthMask replaces byte 4 of the BTH by ones.
	bthMask = 0xFF << 24

	// crcLong is the length from which on carry-less multiplication is faster than crc8.
	crcLong = 64
)

// foldable reports whether fold can process n bytes: whole words, of which at least eight bytes precede the full
// blocks.
func foldable(n int) bool { return n >= crcLong && n%4 == 0 && n%64 != 4 }

// crcHeaders returns the CRC register after the outer headers of a transport packet of n bytes, from BTH to ICRC. The
// fields are masked, and the identification is 0. It takes the headers eight bytes at a time from the fields and does
// not write them to memory: a buffer on the stack would escape to the heap through crc32.Update, which calls a function
// variable.
func (o *Outer) crcHeaders(n uint32) uint32 {
	crc := uint32(icrcSeed)
	udpLen := UDPLen + n
	ports := uint32(o.SrcPort)<<16 | uint32(o.DstPort)
	if o.Src.Is4() {
		frag := uint64(flagDF)
		if o.NoDF {
			frag = 0
		}
		crc = crc8(crc, 0x45FF<<48|uint64(IPv4Len+udpLen)&0xFFFF<<32|frag)
		crc = crc8(crc, 0xFF<<56|protoUDP<<48|0xFFFF<<32|uint64(binary.BigEndian.Uint32(o.Src[12:])))
		crc = crc8(crc, uint64(binary.BigEndian.Uint32(o.Dst[12:]))<<32|uint64(ports))
		return crc4(crc, udpLen<<16|0xFFFF)
	}
	crc = crc8(crc, 0x6FFFFFFF<<32|uint64(udpLen&0xFFFF)<<16|protoUDP<<8|0xFF)
	crc = crc8(crc, binary.BigEndian.Uint64(o.Src[:]))
	crc = crc8(crc, binary.BigEndian.Uint64(o.Src[8:]))
	crc = crc8(crc, binary.BigEndian.Uint64(o.Dst[:]))
	crc = crc8(crc, binary.BigEndian.Uint64(o.Dst[8:]))
	return crc8(crc, uint64(ports)<<32|uint64(udpLen&0xFFFF)<<16|0xFFFF)
}

// crc8 advances the CRC register by eight bytes, given as a big endian number.
func crc8(crc uint32, v uint64) uint32 {
	v = bits.ReverseBytes64(v) ^ uint64(crc)
	return crcTable[7][v&0xFF] ^ crcTable[6][v>>8&0xFF] ^ crcTable[5][v>>16&0xFF] ^ crcTable[4][v>>24&0xFF] ^
		crcTable[3][v>>32&0xFF] ^ crcTable[2][v>>40&0xFF] ^ crcTable[1][v>>48&0xFF] ^ crcTable[0][v>>56]
}

// crc4 advances the CRC register by four bytes, given as a big endian number.
func crc4(crc, v uint32) uint32 {
	v = bits.ReverseBytes32(v) ^ crc
	return crcTable[3][v&0xFF] ^ crcTable[2][v>>8&0xFF] ^ crcTable[1][v>>16&0xFF] ^ crcTable[0][v>>24]
}

// crcTable[k][c] is the CRC register, from 0, after byte c and k zero bytes.
var crcTable = makeCRCTable()

// idTable[i][c] is what byte i of an identification contributes to the CRC register after the outer headers if it is c;
// contributions can be added because the CRC is linear.
var idTable = makeIDTable()

// idToBTH is the number of outer header bytes after the identification.
const idToBTH = IPv4Len + UDPLen - 6

func makeIDTable() (t [2][256]uint32) {
	for i := range t {
		for c := range t[i] {
			crc := crcTable[0][c]
			for range idToBTH + 1 - i {
				crc = crcTable[0][byte(crc)] ^ crc>>8
			}
			t[i][c] = crc
		}
	}
	return t
}

func makeCRCTable() (t [8][256]uint32) {
	t[0] = *crc32.IEEETable
	for k := 1; k < len(t); k++ {
		for c, v := range t[k-1] {
			t[k][c] = t[0][byte(v)] ^ v>>8
		}
	}
	return t
}

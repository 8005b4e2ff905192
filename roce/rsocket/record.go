package rsocket

import (
	"encoding/binary"
	"fmt"

	"github.com/goroce/goroce/ib"
)

// recordLen is the length of the connection record: the private data of REQ and REP. Its fields are big endian.
const recordLen = 40

// version is the only version of the protocol.
const version = 1

// Flags of a record.
const (
	flagBigEndian = 1 << 0 // the sender reads its SGL and iomap as a big-endian host
	flagIOMap     = 1 << 1 // the sender supports iomaps
)

// sglEntries is the number of entries of the target SGL in all known implementations.
const sglEntries = 2

// sge is memory of one end that the other may WRITE to.
type sge struct {
	addr   uint64
	key    ib.Key
	length uint32
}

// Sizes of the table entries that the ends write into each other's memory.
const (
	sgeLen      = 16 // address, key, length
	mapEntryLen = 24 // offset, address, key, length
)

// record describes an end to its peer: its target SGL, behind which lies the iomap, and the first half of its receive
// buffer.
type record struct {
	bigEndian bool
	ioMap     bool
	credits   uint16 // size of its receive queue
	mapSlots  int    // entries of its iomap
	sgl       sge    // length is the number of entries
	data      sge
}

// append encodes r.
func (r *record) append(b []byte) []byte {
	var flags byte
	if r.bigEndian {
		flags |= flagBigEndian
	}
	if r.ioMap {
		flags |= flagIOMap
	}
	b = append(b, version, flags)
	b = binary.BigEndian.AppendUint16(b, r.credits)
	b = append(b, 0, 0, 0, mapCode(r.mapSlots))
	b = r.sgl.append(b, binary.BigEndian)
	return r.data.append(b, binary.BigEndian)
}

// parseRecord decodes a record, which other bytes may follow.
func parseRecord(b []byte) (r record, err error) {
	if len(b) < recordLen {
		return r, &ProtocolError{What: "connection record of so many bytes", Value: uint64(len(b)),
			Allowed: "40 or more"}
	}
	if b[0] != version {
		return r, &ProtocolError{What: "version", Value: uint64(b[0]), Allowed: "1; the peer is no rsocket program"}
	}
	r = record{
		bigEndian: b[1]&flagBigEndian != 0,
		ioMap:     b[1]&flagIOMap != 0,
		credits:   binary.BigEndian.Uint16(b[2:]),
		sgl:       parseSGE(b[8:], binary.BigEndian),
		data:      parseSGE(b[24:], binary.BigEndian),
	}
	if r.ioMap {
		r.mapSlots = mapSlots(b[7])
	}
	return r, r.check()
}

// check rejects records with impossible values.
func (r *record) check() error {
	if r.credits == 0 {
		return &ProtocolError{What: "credits", Value: 0, Allowed: "1 or more"}
	}
	if r.sgl.length < sglEntries || r.sgl.length > 1<<16 {
		return &ProtocolError{What: "entries of the target SGL", Value: uint64(r.sgl.length), Allowed: "2 to 65536"}
	}
	if size := uint64(r.sgl.length)*sgeLen + uint64(r.mapSlots)*mapEntryLen; r.sgl.addr+size < r.sgl.addr {
		return &ProtocolError{What: "address of the target SGL", Value: r.sgl.addr, Allowed: "one where the SGL fits"}
	}
	return r.data.check()
}

// check rejects buffers that wrap around the end of the address space.
func (s *sge) check() error {
	if s.addr+uint64(s.length) < s.addr {
		return &ProtocolError{What: "address of a buffer", Value: s.addr,
			Allowed: fmt.Sprintf("one where %d bytes fit", s.length)}
	}
	return nil
}

// byteOrder returns the byte order of the end that sent r.
func (r *record) byteOrder() binary.AppendByteOrder {
	if r.bigEndian {
		return binary.BigEndian
	}
	return binary.LittleEndian
}

func (s *sge) append(b []byte, o binary.AppendByteOrder) []byte {
	b = o.AppendUint64(b, s.addr)
	b = o.AppendUint32(b, uint32(s.key))
	return o.AppendUint32(b, s.length)
}

func parseSGE(b []byte, o binary.ByteOrder) sge {
	return sge{addr: o.Uint64(b), key: ib.Key(o.Uint32(b[8:])), length: o.Uint32(b[12:])}
}

// mapCode encodes the size of an iomap: up to 128 as the number itself; above, the low seven bits count units of 256
// entries (rs_value_to_scale).
func mapCode(slots int) uint8 {
	if slots <= 128 {
		return uint8(slots)
	}
	return 128 | uint8(slots>>8)
}

// mapSlots is the inverse of mapCode.
func mapSlots(code uint8) int {
	if code <= 128 {
		return int(code)
	}
	return int(code&^128) << 8
}

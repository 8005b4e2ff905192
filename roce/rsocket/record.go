package rsocket

import (
	"encoding/binary"
	"fmt"

	"github.com/goroce/goroce/ib"
)

// recordLen is the length of the connection record that both ends send as private
// data of their REQ and REP. Its fields are big endian.
const recordLen = 40

// version is the only one of the protocol.
const version = 1

// Flags of a record.
const (
	flagBigEndian = 1 << 0 // the sender reads its SGL and iomap as a big-endian host
	flagIOMap     = 1 << 1 // it knows iomaps
)

// The target SGL of every known implementation has this many entries.
const sglEntries = 2

// sge names memory of one end for the other: where it may RDMA WRITE.
type sge struct {
	addr   uint64
	key    ib.Key
	length uint32
}

// Sizes of what the peers write into each other's memory.
const (
	sgeLen      = 16 // address, key, length
	mapEntryLen = 24 // offset, address, key, length
)

// record is what an end tells of itself: where its target SGL is, and its first
// receive buffer. The iomap lies behind the SGL.
type record struct {
	bigEndian bool
	ioMap     bool
	credits   uint16 // messages that its receive queue takes
	mapSlots  int    // entries of its iomap
	sgl       sge    // length counts entries
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

// parseRecord decodes a record; private data may be longer.
func parseRecord(b []byte) (r record, err error) {
	if len(b) < recordLen {
		return r, &ProtocolError{What: "connection record of so many bytes", Value: uint64(len(b)), Allowed: "40 or more"}
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

// check refuses records that the peer cannot mean.
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

// check refuses buffers that wrap around the end of memory.
func (s *sge) check() error {
	if s.addr+uint64(s.length) < s.addr {
		return &ProtocolError{What: "address of a buffer", Value: s.addr, Allowed: fmt.Sprintf("one where %d bytes fit", s.length)}
	}
	return nil
}

// byteOrder is that of the end that sent r.
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

// mapCode encodes the size of an iomap: up to 128 it is the number itself; above,
// the low seven bits count 256 entries each (rs_value_to_scale).
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

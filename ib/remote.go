package ib

import (
	"encoding/binary"
	"math"
)

// RemoteBuffer names memory of a peer: all that READs, WRITEs and atomics need to reach it. The peer makes it by
// RemoteBufferOf and sends it, for instance in the private data of rdma_cm. Whoever knows it, and has a queue pair of
// the memory's protection domain at the other end, can use the memory as its access rights say.
type RemoteBuffer struct {
	Addr   uint64 // of the first byte, for SendWR.RemoteAddr
	RKey   Key
	Length uint64 // bytes, at least 1
}

// RemoteBufferLen is the length of an encoded RemoteBuffer, in bytes.
const RemoteBufferLen = 20

// RemoteBufferOf returns what a peer needs to reach all of a region.
func RemoteBufferOf(mr MR) RemoteBuffer {
	return RemoteBuffer{Addr: mr.Addr(), RKey: mr.RKey(), Length: uint64(mr.Len())}
}

// AppendBinary appends the address, the R_Key and the length to p, in network byte order. It does not fail.
func (b RemoteBuffer) AppendBinary(p []byte) ([]byte, error) {
	p = binary.BigEndian.AppendUint64(p, b.Addr)
	p = binary.BigEndian.AppendUint32(p, uint32(b.RKey))
	return binary.BigEndian.AppendUint64(p, b.Length), nil
}

// MarshalBinary encodes b as AppendBinary does.
func (b RemoteBuffer) MarshalBinary() ([]byte, error) {
	return b.AppendBinary(make([]byte, 0, RemoteBufferLen))
}

// UnmarshalBinary decodes the first RemoteBufferLen bytes of p. More may follow: private data is padded with zeros.
func (b *RemoteBuffer) UnmarshalBinary(p []byte) error {
	const op = "decode remote buffer"
	if len(p) < RemoteBufferLen {
		return &AttrError{op, "len(p)", len(p), "20 bytes at least; the peer has sent something else", ErrInvalid}
	}
	r := RemoteBuffer{
		Addr:   binary.BigEndian.Uint64(p),
		RKey:   Key(binary.BigEndian.Uint32(p[8:])),
		Length: binary.BigEndian.Uint64(p[12:]),
	}
	if r.Length == 0 || r.Length-1 > math.MaxUint64-r.Addr || r.Length > math.MaxInt64 {
		return &AttrError{op, "Length", r.Length,
			"1 up to the end of the address space; the peer has sent something else", ErrInvalid}
	}
	*b = r
	return nil
}

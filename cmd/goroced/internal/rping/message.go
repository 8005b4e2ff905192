package rping

import (
	"encoding/binary"
	"fmt"

	"github.com/goroce/goroce/ib"
)

// messageLen is the length of every SEND.
const messageLen = 16

// place is a client's message: the memory that the server may READ or WRITE. A server's message, the go-ahead, has the
// same length and is all zeros.
type place struct {
	addr   uint64
	rkey   ib.Key
	length uint32
}

func (p place) encode() []byte {
	b := binary.BigEndian.AppendUint64(make([]byte, 0, messageLen), p.addr)
	b = binary.BigEndian.AppendUint32(b, uint32(p.rkey))
	return binary.BigEndian.AppendUint32(b, p.length)
}

func decodePlace(b *[messageLen]byte) place {
	return place{binary.BigEndian.Uint64(b[:]), ib.Key(binary.BigEndian.Uint32(b[8:])), binary.BigEndian.Uint32(b[12:])}
}

// String formats the place for logs.
func (p place) String() string {
	return fmt.Sprintf("address %#x, R_Key %#x, %d bytes", p.addr, uint32(p.rkey), p.length)
}

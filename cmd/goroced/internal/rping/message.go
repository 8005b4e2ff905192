package rping

import (
	"encoding/binary"
	"fmt"

	"github.com/goroce/goroce/ib"
)

// messageLen is the length of every SEND of either end.
const messageLen = 16

// place is what a client's message says: where the server may READ or WRITE. A
// server's message, the go-ahead, is as long and all zeros.
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

// String is the place as logs show it.
func (p place) String() string {
	return fmt.Sprintf("address %#x, R_Key %#x, %d bytes", p.addr, uint32(p.rkey), p.length)
}

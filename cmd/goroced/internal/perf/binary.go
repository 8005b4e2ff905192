package perf

import (
	"encoding/binary"
	"fmt"

	"github.com/goroce/goroce/ib"
)

// binaryAddresses encodes addresses for rdma_cm: perftest's structure as on 64-bit machines, big endian.
//
//	 0  LID, OUT, QPN, PSN, R_Key   4 bytes each
//	20  4 bytes of padding
//	24  VADDR                       8
//	32  GID                         16
//	48  SRQ number, GID index       4 each, which no end reads
type binaryAddresses struct{}

const (
	binaryLen   = 56
	binaryVAddr = 24
	binaryGID   = 32
)

func (binaryAddresses) encode(a *address) []byte {
	msg := make([]byte, binaryLen)
	for i, v := range []uint32{uint32(a.lid), uint32(a.outstanding), uint32(a.qpn), uint32(a.psn), uint32(a.rkey)} {
		binary.BigEndian.PutUint32(msg[4*i:], v)
	}
	binary.BigEndian.PutUint64(msg[binaryVAddr:], a.vaddr)
	copy(msg[binaryGID:], a.gid[:])
	return msg
}

// decode decodes an address of binaryLen bytes and checks every field. The GID may be missing, because the connection
// has it.
func (binaryAddresses) decode(msg []byte) (address, error) {
	field := func(i int) uint32 { return binary.BigEndian.Uint32(msg[4*i:]) }
	for _, f := range []struct {
		i    int
		name string
		bits int
	}{{0, "LID", 16}, {1, "number of outstanding READs", 16}, {2, "QPN", 24}, {3, "PSN", 24}} {
		if v := field(f.i); v >= 1<<f.bits {
			return address{}, fmt.Errorf("%w: the peer's %s is %#x, which has more than %d bits", ErrExchange, f.name,
				v, f.bits)
		}
	}
	return address{lid: uint16(field(0)), outstanding: int(field(1)), qpn: ib.QPN(field(2)), psn: ib.PSN(field(3)),
		rkey: ib.Key(field(4)), vaddr: binary.BigEndian.Uint64(msg[binaryVAddr:]),
		gid: ib.GID(msg[binaryGID : binaryGID+len(ib.GID{})])}, nil
}

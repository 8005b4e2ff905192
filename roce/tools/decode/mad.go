package decode

import (
	"encoding/binary"
	"fmt"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/wire"
)

// A management datagram (IBTA 13.4.3) has 256 bytes, of which 24 are the header.
const (
	madLen    = 256
	madHeader = 24
	classCM   = 7
)

// Attributes of the connection manager's class.
const (
	cmREQ     = 0x10
	cmREJ     = 0x12
	cmREP     = 0x13
	cmDREQ    = 0x15
	cmSIDRREQ = 0x17
)

var cmNames = [...]string{cmREQ - 16: "REQ", 1: "MRA", cmREJ - 16: "REJ", cmREP - 16: "REP", 4: "RTU", cmDREQ - 16: "DREQ", 6: "DREP",
	cmSIDRREQ - 16: "SIDR_REQ", 8: "SIDR_REP", 9: "LAP", 10: "APR"}

// madText summarizes a management datagram to QP 1; it returns "" for other
// datagrams.
func madText(p *wire.Packet) string {
	b := p.Payload
	if p.DestQP != ib.QPNGSI || len(b) != madLen {
		return ""
	}
	attr := int(binary.BigEndian.Uint16(b[16:]))
	if b[1] != classCM || attr < cmREQ || attr-cmREQ >= len(cmNames) {
		return fmt.Sprintf("MAD class %#02x method %#02x attribute %#04x", b[1], b[3], attr)
	}
	s := "CM " + cmNames[attr-cmREQ]
	body := b[madHeader:]
	switch attr {
	case cmREQ:
		return s + fmt.Sprintf(": my qp %#x, send me psn %d first, path MTU %d, service %s", be24(body[32:]), be24(body[44:]),
			ib.MTUFromCode(int(body[50]>>4)), serviceText(body[8:]))
	case cmREP:
		return s + fmt.Sprintf(": my qp %#x, send me psn %d first", be24(body[12:]), be24(body[20:]))
	case cmREJ:
		return s + fmt.Sprintf(": reason %d", binary.BigEndian.Uint16(body[10:]))
	case cmDREQ:
		return s + fmt.Sprintf(": disconnect qp %#x", be24(body[8:]))
	case cmSIDRREQ:
		return s + ": service " + serviceText(body[8:])
	}
	return s
}

// serviceText names a service ID: rdma_cm makes it of a port space and a port
// (the kernel's cma.c).
func serviceText(b []byte) string {
	id := binary.BigEndian.Uint64(b)
	switch id >> 16 {
	case 0x0106:
		return fmt.Sprintf("TCP port %d", id&0xFFFF)
	case 0x0111:
		return fmt.Sprintf("UDP port %d", id&0xFFFF)
	}
	return fmt.Sprintf("%#x", id)
}

func be24(b []byte) uint32 { return uint32(b[0])<<16 | uint32(b[1])<<8 | uint32(b[2]) }

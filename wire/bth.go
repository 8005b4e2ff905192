package wire

import (
	"encoding/binary"

	"github.com/goroce/goroce/ib"
)

// BTHLen is the length of the BTH in bytes.
const BTHLen = 12

// BTH is the base transport header (IBTA 9.2) of every packet.
//
// Receivers ignore reserved bits (IBTA 9.2). They are kept here, so that a decoded packet can be encoded unchanged.
type BTH struct {
	Opcode Opcode
	SE     bool   // solicited event: the receiver's CQ, if armed, raises an event
	MigReq bool   // path migration state; rdma_rxe sends 0, NICs send 1, and both ignore it
	PadCnt uint8  // 0..3 bytes of pad after the payload
	TVer   uint8  // transport header version, 0
	PKey   uint16 // partition key
	FECN   bool   // the packet has met congestion on its way (forward)
	BECN   bool   // packets of the other direction have met congestion (backward): set in a CNP
	Resv6  uint8  // six reserved bits after BECN
	DestQP ib.QPN
	AckReq bool  // the responder must acknowledge this packet
	Resv7  uint8 // seven reserved bits after AckReq
	PSN    ib.PSN
}

// Masks of the flag bits in bytes 1, 4 and 8.
const (
	bthSE     = 0x80
	bthMigReq = 0x40
	bthFECN   = 0x80
	bthBECN   = 0x40
	bthAckReq = 0x80
)

// decode decodes the header from b, which has at least BTHLen bytes.
func (h *BTH) decode(b []byte) {
	_ = b[BTHLen-1]
	h.Opcode = Opcode(b[0])
	h.SE = b[1]&bthSE != 0
	h.MigReq = b[1]&bthMigReq != 0
	h.PadCnt = b[1] >> 4 & 3
	h.TVer = b[1] & 0xF
	h.PKey = binary.BigEndian.Uint16(b[2:])
	dest := binary.BigEndian.Uint32(b[4:])
	h.FECN = b[4]&bthFECN != 0
	h.BECN = b[4]&bthBECN != 0
	h.Resv6 = b[4] & 0x3F
	h.DestQP = ib.QPN(dest) & ib.QPNMask
	psn := binary.BigEndian.Uint32(b[8:])
	h.AckReq = b[8]&bthAckReq != 0
	h.Resv7 = b[8] & 0x7F
	h.PSN = ib.PSN(psn) & ib.PSNMask
}

// put writes the header to b, which has at least BTHLen bytes. Values that do not fit their field are cut.
func (h *BTH) put(b []byte) {
	_ = b[BTHLen-1]
	b[0] = byte(h.Opcode)
	b[1] = flag(h.SE, bthSE) | flag(h.MigReq, bthMigReq) | h.PadCnt&3<<4 | h.TVer&0xF
	binary.BigEndian.PutUint16(b[2:], h.PKey)
	binary.BigEndian.PutUint32(b[4:], uint32(h.DestQP&ib.QPNMask))
	b[4] = flag(h.FECN, bthFECN) | flag(h.BECN, bthBECN) | h.Resv6&0x3F
	binary.BigEndian.PutUint32(b[8:], uint32(h.PSN&ib.PSNMask))
	b[8] = flag(h.AckReq, bthAckReq) | h.Resv7&0x7F
}

// flag returns bit if on is true, otherwise 0.
func flag(on bool, bit byte) byte {
	if on {
		return bit
	}
	return 0
}

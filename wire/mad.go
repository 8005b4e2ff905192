package wire

import (
	"encoding/binary"
	"fmt"

	"github.com/goroce/goroce/ib"
)

// Lengths of management datagrams in bytes (IBTA 13.4.3).
const (
	MADLen       = 256 // length of every MAD
	MADHeaderLen = 24
)

// MADHeader is the header of all management datagrams (IBTA 13.4.3).
type MADHeader struct {
	BaseVersion  uint8 // 1
	Class        uint8 // management class: MADClassCM
	ClassVersion uint8 // 2 for the connection manager
	Method       uint8 // MADMethodSend, for answers, too
	Status       uint16
	TID          uint64 // transaction ID; an answer has the ID of what it answers
	Attr         CMAttr
	Modifier     uint32
}

// Header values of the connection manager's messages.
const (
	MADBaseVersion    = 1
	MADClassCM        = 0x07
	MADClassVersionCM = 2
	MADMethodSend     = 0x03
)

// CMAttr is the attribute of a MAD of class CM: which message it is (IBTA 12.6).
type CMAttr uint16

// Messages of the communication manager.
const (
	AttrREQ     CMAttr = 0x10 // ConnectRequest
	AttrMRA     CMAttr = 0x11 // MsgRcptAck
	AttrREJ     CMAttr = 0x12 // ConnectReject
	AttrREP     CMAttr = 0x13 // ConnectReply
	AttrRTU     CMAttr = 0x14 // ReadyToUse
	AttrDREQ    CMAttr = 0x15 // DisconnectRequest
	AttrDREP    CMAttr = 0x16 // DisconnectReply
	AttrSIDRREQ CMAttr = 0x17 // ServiceIDResReq
	AttrSIDRREP CMAttr = 0x18 // ServiceIDResReqResp
	AttrLAP     CMAttr = 0x19 // LoadAlternatePath
	AttrAPR     CMAttr = 0x1A // AlternatePathResponse
)

// MAD returns the payload of a packet to QP 1 if it is a management datagram, otherwise nil.
func (p *Packet) MAD() *[MADLen]byte {
	if p.DestQP != ib.QPNGSI || p.Opcode.Service() != UD || len(p.Payload) != MADLen {
		return nil
	}
	return (*[MADLen]byte)(p.Payload)
}

// Decode reads the first 24 bytes of a MAD. It accepts any values.
func (h *MADHeader) Decode(mad *[MADLen]byte) {
	h.BaseVersion, h.Class, h.ClassVersion, h.Method = mad[0], mad[1], mad[2], mad[3]
	h.Status = binary.BigEndian.Uint16(mad[4:])
	h.TID = binary.BigEndian.Uint64(mad[8:])
	h.Attr = CMAttr(binary.BigEndian.Uint16(mad[16:]))
	h.Modifier = binary.BigEndian.Uint32(mad[20:])
}

// Put writes the first 24 bytes of a MAD.
func (h *MADHeader) Put(mad *[MADLen]byte) {
	mad[0], mad[1], mad[2], mad[3] = h.BaseVersion, h.Class, h.ClassVersion, h.Method
	binary.BigEndian.PutUint32(mad[4:], uint32(h.Status)<<16)
	binary.BigEndian.PutUint64(mad[8:], h.TID)
	binary.BigEndian.PutUint32(mad[16:], uint32(h.Attr)<<16)
	binary.BigEndian.PutUint32(mad[20:], h.Modifier)
}

// Name returns the name of the message, like "CM REQ", or "MAD" if it is not a message of the connection manager.
func (h *MADHeader) Name() string {
	if h.Class != MADClassCM || h.Attr < AttrREQ || h.Attr > AttrAPR {
		return "MAD"
	}
	return "CM " + h.Attr.String()
}

// String returns the short name of the message: "REQ", "SIDR_REP".
func (a CMAttr) String() string { return nameOf(attrText[:], int(a), "CMAttr") }

var attrText = [...]string{
	AttrREQ: "REQ", AttrMRA: "MRA", AttrREJ: "REJ", AttrREP: "REP", AttrRTU: "RTU", AttrDREQ: "DREQ", AttrDREP: "DREP",
	AttrSIDRREQ: "SIDR_REQ", AttrSIDRREP: "SIDR_REP", AttrLAP: "LAP", AttrAPR: "APR",
}

// nameOf returns table[i], or kind with the number if the table has no name for it.
func nameOf(table []string, i int, kind string) string {
	if i < len(table) && table[i] != "" {
		return table[i]
	}
	return fmt.Sprintf("%s(%d)", kind, i)
}

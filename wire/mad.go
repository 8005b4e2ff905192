package wire

// Lengths of management datagrams in bytes (IBTA 13.4.3).
const (
	MADLen       = 256 // the whole of one: always this long
	MADHeaderLen = 24
)

// MADHeader is the header that all management datagrams begin with (IBTA 13.4.3).
type MADHeader struct {
	BaseVersion  uint8 // 1
	Class        uint8 // management class: MADClassCM
	ClassVersion uint8 // 2 for the communication manager
	Method       uint8 // MADMethodSend, also for what answers
	Status       uint16
	TID          uint64 // transaction: an answer has that of what it answers
	Attr         CMAttr
	Modifier     uint32
}

// Values that messages of the communication manager have in their headers.
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

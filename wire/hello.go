package wire

// Hello announces a device of this project to another: a management datagram of a vendor's class, to QP 1 (IBTA 16.5).
// Who takes it answers with one of its own. Linux answers that it does not support the class.
type Hello struct {
	Answer  bool   // GetResp, else Get
	TID     uint64 // an answer has that of the request
	Status  uint16 // of an answer: 0, or why there is none
	Version uint8  // HelloVersion; higher ones only add fields
}

// Values of a Hello. The class is one of those with an OUI, of which this one is locally administered: nobody else is
// given it.
const (
	HelloVersion = 1

	MADClassHello = 0x32
	attrHello     = CMAttr(0x10)

	madMethodGet     = 0x01
	madMethodGetResp = 0x81
)

var helloOUI = [3]byte{0x0A, 'G', 'O'}

// Where the fields of a Hello are, behind the MAD header, that of RMPP (12 bytes) and a reserved byte.
const (
	helloOUIAt  = MADHeaderLen + 12 + 1
	helloDataAt = helloOUIAt + len(helloOUI)
)

// Decode reads a MAD and reports whether it is a Hello.
func (h *Hello) Decode(mad *[MADLen]byte) bool {
	var hdr MADHeader
	hdr.Decode(mad)
	answer := hdr.Method == madMethodGetResp
	if hdr.BaseVersion != MADBaseVersion || hdr.Class != MADClassHello || hdr.Attr != attrHello ||
		!answer && hdr.Method != madMethodGet || [3]byte(mad[helloOUIAt:]) != helloOUI {
		return false
	}
	*h = Hello{Answer: answer, TID: hdr.TID, Status: hdr.Status, Version: mad[helloDataAt]}
	return true
}

// Put writes the MAD.
func (h *Hello) Put(mad *[MADLen]byte) {
	clear(mad[:])
	hdr := MADHeader{BaseVersion: MADBaseVersion, Class: MADClassHello, ClassVersion: 1, Method: madMethodGet,
		Status: h.Status, TID: h.TID, Attr: attrHello}
	if h.Answer {
		hdr.Method = madMethodGetResp
	}
	hdr.Put(mad)
	copy(mad[helloOUIAt:], helloOUI[:])
	mad[helloDataAt] = h.Version
}

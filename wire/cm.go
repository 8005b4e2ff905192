package wire

import "github.com/goroce/goroce/ib"

// Lengths of the private data fields in bytes (IBTA 12.6).
const (
	REQPrivateLen     = 92
	MRAPrivateLen     = 222
	REJPrivateLen     = 148
	REPPrivateLen     = 196
	RTUPrivateLen     = 224
	DREQPrivateLen    = 220
	DREPPrivateLen    = 224
	SIDRREQPrivateLen = 216
	SIDRREPPrivateLen = 136

	REJInfoLen     = 72 // additional reject information
	SIDRREPInfoLen = 72
)

// REQ requests a connection (IBTA 12.6.5). Timeouts are 5-bit codes t for 4.096 us * 2^t.
type REQ struct {
	LocalID               uint32 // communication ID of the sender
	ServiceID             uint64 // the service to connect to
	CAGUID                uint64 // of the sender's device
	QKey                  uint32
	QPN                   ib.QPN // of the sender
	ResponderResources    uint8  // READs and atomics that the sender accepts at a time
	InitiatorDepth        uint8  // READs and atomics that the sender wants to have outstanding
	RemoteResponseTimeout uint8  // time in which the receiver should answer
	Transport             uint8  // CMTransportRC ...
	FlowControl           bool   // end-to-end flow control by credits
	StartingPSN           ib.PSN // the first PSN that the sender of the message expects
	LocalResponseTimeout  uint8  // time in which the sender will answer
	RetryCount            uint8  // 3 bits
	PKey                  uint16
	PathMTU               ib.MTU // 0 if the code is not valid
	RDCExists             bool
	RNRRetry              uint8 // 3 bits
	MaxCMRetries          uint8 // 4 bits
	SRQ                   bool
	ExtTransport          uint8 // 3 bits: 1 is XRC
	Primary, Alternate    CMPath
	PrivateData           []byte // at most REQPrivateLen; Decode returns the whole field
}

// CMPath is a path of a REQ.
type CMPath struct {
	LocalLID, RemoteLID uint16
	LocalGID, RemoteGID ib.GID // LocalGID is the sender's
	FlowLabel           uint32 // 20 bits
	Rate                uint8  // 6 bits
	TrafficClass        uint8
	HopLimit            uint8
	SL                  uint8 // 4 bits
	SubnetLocal         bool
	AckTimeout          uint8 // 5 bits: the local ACK timeout of both ends
}

// Transport services of a REQ.
const (
	CMTransportRC  = 0
	CMTransportUC  = 1
	CMTransportExt = 3 // ExtTransport says which
)

// MRA says that the answer to a message will take longer (IBTA 12.6.6).
type MRA struct {
	LocalID, RemoteID uint32
	Message           CMMessage // the message that was received
	ServiceTimeout    uint8     // 5-bit code
	PrivateData       []byte
}

// CMMessage is the message that a MRA or REJ refers to.
type CMMessage uint8

// Messages that MRA and REJ name.
const (
	MessageREQ   CMMessage = 0
	MessageREP   CMMessage = 1
	MessageOther CMMessage = 2 // REJ: none of these; MRA: a LAP
)

// String returns the short name of the message.
func (m CMMessage) String() string { return nameOf(messageText[:], int(m), "CMMessage") }

var messageText = [...]string{MessageREQ: "REQ", MessageREP: "REP", MessageOther: "other"}

// REJ rejects a message, or a connection (IBTA 12.6.7).
type REJ struct {
	LocalID, RemoteID uint32 // LocalID is 0 if the sender has no ID
	Message           CMMessage
	Reason            ib.RejectReason
	Info              []byte // additional reject information, at most REJInfoLen
	PrivateData       []byte
}

// REP accepts a REQ (IBTA 12.6.8).
type REP struct {
	LocalID, RemoteID  uint32
	QKey               uint32
	QPN                ib.QPN
	StartingPSN        ib.PSN // the first PSN that the sender of the message expects
	ResponderResources uint8
	InitiatorDepth     uint8
	TargetACKDelay     uint8 // 5-bit code
	FailoverAccepted   uint8 // 2 bits
	FlowControl        bool
	RNRRetry           uint8 // 3 bits
	SRQ                bool
	CAGUID             uint64
	PrivateData        []byte
}

// RTU completes the three-way handshake (IBTA 12.6.9).
type RTU struct {
	LocalID, RemoteID uint32
	PrivateData       []byte
}

// DREQ ends a connection (IBTA 12.6.10).
type DREQ struct {
	LocalID, RemoteID uint32
	RemoteQPN         ib.QPN // of the receiver
	PrivateData       []byte
}

// DREP answers a DREQ (IBTA 12.6.11).
type DREP struct {
	LocalID, RemoteID uint32
	PrivateData       []byte
}

// SIDRREQ asks for the UD QP of a service ID (IBTA 12.11.2.1).
type SIDRREQ struct {
	RequestID   uint32
	PKey        uint16
	ServiceID   uint64
	PrivateData []byte
}

// SIDRREP answers a SIDRREQ (IBTA 12.11.2.2).
type SIDRREP struct {
	RequestID   uint32
	Status      ib.SIDRStatus
	QPN         ib.QPN
	ServiceID   uint64
	QKey        uint32
	Info        []byte // at most SIDRREPInfoLen
	PrivateData []byte
}

// CMHeaderLen is the length of the header that rdma_cm puts before the private data of REQs and SIDR_REQs (IBTA annex
// A11, Linux's struct cma_hdr).
const CMHeaderLen = 36

// CMHeader has the addresses and the source port of a connection (IBTA annex A11).
type CMHeader struct {
	Src, Dst ib.GID // IPv4 addresses in mapped form; both of one family
	SrcPort  uint16
}

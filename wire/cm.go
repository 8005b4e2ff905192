package wire

import "github.com/goroce/goroce/ib"

// Most private data of each message, in bytes (IBTA 12.6).
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

// REQ asks for a connection (IBTA 12.6.5). Timeouts are 5-bit codes t that stand
// for 4.096 us * 2^t.
type REQ struct {
	LocalID               uint32 // communication ID of the sender
	ServiceID             uint64 // what is asked for
	CAGUID                uint64 // of the sender's device
	QKey                  uint32
	QPN                   ib.QPN // the sender's
	ResponderResources    uint8  // READs and atomics that the sender takes at a time
	InitiatorDepth        uint8  // that it wants to have under way
	RemoteResponseTimeout uint8  // within which the receiver shall answer
	Transport             uint8  // CMTransportRC ...
	FlowControl           bool   // end-to-end flow control by credits
	StartingPSN           ib.PSN // the first that the sender of the message expects
	LocalResponseTimeout  uint8  // within which the sender will answer
	RetryCount            uint8  // 3 bits
	PKey                  uint16
	PathMTU               ib.MTU // 0 if the code on the wire is none
	RDCExists             bool
	RNRRetry              uint8 // 3 bits
	MaxCMRetries          uint8 // 4 bits
	SRQ                   bool
	ExtTransport          uint8 // 3 bits: 1 is XRC
	Primary, Alternate    CMPath
	PrivateData           []byte // at most REQPrivateLen; decoded, all of them
}

// CMPath is a path of a REQ.
type CMPath struct {
	LocalLID, RemoteLID uint16
	LocalGID, RemoteGID ib.GID // local is the sender's
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

// MRA says that the answer to a message takes longer (IBTA 12.6.6).
type MRA struct {
	LocalID, RemoteID uint32
	Message           CMMessage // which was received
	ServiceTimeout    uint8     // 5-bit code
	PrivateData       []byte
}

// CMMessage says which message a MRA or REJ is about.
type CMMessage uint8

// Messages that MRA and REJ name.
const (
	MessageREQ   CMMessage = 0
	MessageREP   CMMessage = 1
	MessageOther CMMessage = 2 // REJ: none of these; MRA: LAP
)

// REJ refuses (IBTA 12.6.7).
type REJ struct {
	LocalID, RemoteID uint32 // LocalID is 0 if the sender has none
	Message           CMMessage
	Reason            RejectReason
	Info              []byte // additional reject information, at most REJInfoLen
	PrivateData       []byte
}

// REP accepts a REQ (IBTA 12.6.8).
type REP struct {
	LocalID, RemoteID  uint32
	QKey               uint32
	QPN                ib.QPN
	StartingPSN        ib.PSN // the first that the sender of the message expects
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

// RTU ends the three-way handshake (IBTA 12.6.9).
type RTU struct {
	LocalID, RemoteID uint32
	PrivateData       []byte
}

// DREQ ends a connection (IBTA 12.6.10).
type DREQ struct {
	LocalID, RemoteID uint32
	RemoteQPN         ib.QPN // the receiver's
	PrivateData       []byte
}

// DREP answers a DREQ (IBTA 12.6.11).
type DREP struct {
	LocalID, RemoteID uint32
	PrivateData       []byte
}

// SIDRREQ asks for the UD QP behind a service ID (IBTA 12.11.2.1).
type SIDRREQ struct {
	RequestID   uint32
	PKey        uint16
	ServiceID   uint64
	PrivateData []byte
}

// SIDRREP answers it (IBTA 12.11.2.2).
type SIDRREP struct {
	RequestID   uint32
	Status      SIDRStatus
	QPN         ib.QPN
	ServiceID   uint64
	QKey        uint32
	Info        []byte // at most SIDRREPInfoLen
	PrivateData []byte
}

// SIDRStatus is the answer of a SIDRREP.
type SIDRStatus uint8

// SIDR statuses.
const (
	SIDRValid       SIDRStatus = 0
	SIDRUnsupported SIDRStatus = 1 // no such service ID
	SIDRReject      SIDRStatus = 2 // by the service
	SIDRNoQP        SIDRStatus = 3
	SIDRRedirect    SIDRStatus = 4
	SIDRBadVersion  SIDRStatus = 5
	numSIDRStatus              = 6
)

// RejectReason says why a REJ refuses (IBTA 12.6.7.2).
type RejectReason uint16

// Reasons of a REJ.
const (
	RejectNoQP                   RejectReason = 1
	RejectNoEEC                  RejectReason = 2
	RejectNoResources            RejectReason = 3
	RejectTimeout                RejectReason = 4
	RejectUnsupported            RejectReason = 5
	RejectInvalidCommID          RejectReason = 6
	RejectInvalidCommInstance    RejectReason = 7
	RejectInvalidServiceID       RejectReason = 8 // nobody listens
	RejectInvalidTransport       RejectReason = 9
	RejectStale                  RejectReason = 10 // the sender's QP is part of a connection here
	RejectRDCNotExist            RejectReason = 11
	RejectInvalidGID             RejectReason = 12
	RejectInvalidLID             RejectReason = 13
	RejectInvalidSL              RejectReason = 14
	RejectInvalidTrafficClass    RejectReason = 15
	RejectInvalidHopLimit        RejectReason = 16
	RejectInvalidPacketRate      RejectReason = 17
	RejectInvalidAltGID          RejectReason = 18
	RejectInvalidAltLID          RejectReason = 19
	RejectInvalidAltSL           RejectReason = 20
	RejectInvalidAltTrafficClass RejectReason = 21
	RejectInvalidAltHopLimit     RejectReason = 22
	RejectInvalidAltPacketRate   RejectReason = 23
	RejectPortCMRedirect         RejectReason = 24
	RejectPortRedirect           RejectReason = 25
	RejectInvalidMTU             RejectReason = 26
	RejectResponderResources     RejectReason = 27
	RejectConsumer               RejectReason = 28 // by the application
	RejectRNRRetry               RejectReason = 29
	RejectDuplicateCommID        RejectReason = 30
	RejectInvalidClassVersion    RejectReason = 31
	RejectInvalidFlowLabel       RejectReason = 32
	RejectInvalidAltFlowLabel    RejectReason = 33
	RejectVendorOption           RejectReason = 35
)

// CMHeaderLen is the length of the header that rdma_cm puts before the private
// data of REQs and SIDR_REQs (IBTA annex A11, Linux's struct cma_hdr).
const CMHeaderLen = 36

// CMHeader names the two ends by address (IBTA annex A11).
type CMHeader struct {
	Src, Dst ib.GID // IPv4 in its mapped form; both of one family
	SrcPort  uint16
}

// PortSpace is the part of a service ID that says which ports are meant.
type PortSpace = ib.PortSpace

// Port spaces of rdma_cm.
const (
	PortSpaceIPoIB = ib.PortSpaceIPoIB
	PortSpaceTCP   = ib.PortSpaceTCP
	PortSpaceUDP   = ib.PortSpaceUDP
	PortSpaceIB    = ib.PortSpaceIB
)

package ib

import "math/bits"

// QPType is a transport service. Values are those of ibv_qp_type, where it has them.
type QPType uint8

// Transport services.
const (
	GSI    QPType = 1
	RC     QPType = 2
	UC     QPType = 3
	UD     QPType = 4
	XRCINI QPType = 9
	XRCTGT QPType = 10
)

// String returns the name that `rdma res show qp` prints.
func (t QPType) String() string { return name(qpTypeText[:], int(t), "QPType") }

var qpTypeText = [...]string{GSI: "GSI", RC: "RC", UC: "UC", UD: "UD", XRCINI: "XRC_INI", XRCTGT: "XRC_TGT"}

// QPState is a state of the QP state machine (IBTA 10.3.1). Values are those of
// ibv_qp_state.
type QPState uint8

// QP states.
const (
	StateReset QPState = iota
	StateInit
	StateRTR // ready to receive
	StateRTS // ready to send
	StateSQD // send queue drained, or draining
	StateSQE // send queue error: UC and UD only
	StateErr
	NumQPStates = iota
)

// String returns the state's name.
func (s QPState) String() string { return name(qpStateText[:], int(s), "QPState") }

var qpStateText = [NumQPStates]string{"RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR"}

// Access is a set of access rights, of a region, a window or a QP. Values are
// those of ibv_access_flags. Local read is always granted.
type Access uint32

// Access rights.
const (
	LocalWrite   Access = 1 << 0
	RemoteWrite  Access = 1 << 1
	RemoteRead   Access = 1 << 2
	RemoteAtomic Access = 1 << 3
	BindWindows  Access = 1 << 4
	ZeroBased    Access = 1 << 5
	// FlushGlobal and FlushPersistent let peers FLUSH (IBTA A19.4.2): until all observers see the data, and until the
	// data survives a loss of power.
	FlushGlobal     Access = 1 << 8
	FlushPersistent Access = 1 << 9

	// RemoteInvalidate lets a peer's SEND with invalidate revoke the region's key. The C verbs allow that for windows
	// and for regions of the kernel's fast registration only, and have no flag for it.
	RemoteInvalidate Access = 1 << 31

	// OptionalAccess holds the bits of IBV_ACCESS_OPTIONAL_RANGE, RELAXED_ORDERING among them: a device ignores those
	// that it does not know.
	OptionalAccess Access = 0x3FF << 20

	// QPAccessMask holds the rights that QPAttr.Access may grant.
	QPAccessMask = RemoteWrite | RemoteRead | RemoteAtomic | FlushGlobal | FlushPersistent
)

// QPCap is a QP's capacity. A queue with a capacity of 0 accepts no requests.
type QPCap struct {
	MaxSendWR  int // send queue entries
	MaxRecvWR  int // receive queue entries
	MaxSendSGE int
	MaxRecvSGE int
	MaxInline  int // bytes
}

// QPAttr holds the attributes of Modify and Query. Modify looks only at the
// fields that its mask names.
type QPAttr struct {
	State    QPState
	CurState QPState // what the caller expects the current state to be

	Port      int    // always 1
	PKeyIndex int    // always 0
	Access    Access // what peers may do
	QKey      uint32 // UD: the Q_Key that received datagrams must carry

	AH      AHAttr
	PathMTU MTU
	DestQPN QPN
	RQPSN   PSN // first PSN to expect; from Query, the next one
	SQPSN   PSN // first PSN to send; from Query, the next one

	MaxRdAtomic     int   // READs and atomics that this end may have outstanding (initiator depth)
	MaxDestRdAtomic int   // READs and atomics that the peer may have outstanding (responder resources)
	MinRNRTimer     uint8 // 5-bit code of the delay that our RNR NAKs ask for
	Timeout         uint8 // 5-bit code t of the local ACK timeout, 4.096 us * 2^t (far peers: up to 4 times); 0: none
	RetryCnt        uint8 // 0..7; 7 means seven (rdma_rxe retries for ever then)
	RNRRetry        uint8 // 0..7; 7 means for ever

	RateLimit uint32 // limit of the requests' rate in kilobits per second; 0: no limit

	SQDNotify bool // raise EventSQDrained when SQD is reached
	Draining  bool // query only: in SQD, requests are still in flight
	Cap       QPCap
}

// QPAttrMask says which fields of a QPAttr are set. Values are those of
// ibv_qp_attr_mask.
type QPAttrMask uint32

// Attribute bits.
const (
	AttrState           QPAttrMask = 1 << 0
	AttrCurState        QPAttrMask = 1 << 1
	AttrSQDNotify       QPAttrMask = 1 << 2
	AttrAccess          QPAttrMask = 1 << 3
	AttrPKeyIndex       QPAttrMask = 1 << 4
	AttrPort            QPAttrMask = 1 << 5
	AttrQKey            QPAttrMask = 1 << 6
	AttrAV              QPAttrMask = 1 << 7
	AttrPathMTU         QPAttrMask = 1 << 8
	AttrTimeout         QPAttrMask = 1 << 9
	AttrRetryCnt        QPAttrMask = 1 << 10
	AttrRNRRetry        QPAttrMask = 1 << 11
	AttrRQPSN           QPAttrMask = 1 << 12
	AttrMaxRdAtomic     QPAttrMask = 1 << 13
	AttrAltPath         QPAttrMask = 1 << 14
	AttrMinRNRTimer     QPAttrMask = 1 << 15
	AttrSQPSN           QPAttrMask = 1 << 16
	AttrMaxDestRdAtomic QPAttrMask = 1 << 17
	AttrPathMigState    QPAttrMask = 1 << 18
	AttrCap             QPAttrMask = 1 << 19
	AttrDestQPN         QPAttrMask = 1 << 20
	AttrRateLimit       QPAttrMask = 1 << 25
)

var attrText = [...]string{"State", "CurState", "SQDNotify", "Access", "PKeyIndex", "Port", "QKey", "AH", "PathMTU",
	"Timeout", "RetryCnt", "RNRRetry", "RQPSN", "MaxRdAtomic", "AltPath", "MinRNRTimer", "SQPSN", "MaxDestRdAtomic",
	"PathMigState", "Cap", "DestQPN", 25: "RateLimit"}

// String lists the attributes by the names of their QPAttr fields.
func (m QPAttrMask) String() string {
	s := ""
	for ; m != 0; m &= m - 1 {
		if s != "" {
			s += "|"
		}
		s += name(attrText[:], bits.TrailingZeros32(uint32(m)), "attr")
	}
	return s
}

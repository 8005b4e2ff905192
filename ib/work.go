package ib

// WROpcode says what a send work request does. Values are those of ibv_wr_opcode.
type WROpcode uint8

// Work request opcodes (IBTA 10.8.2, libibverbs).
const (
	WRWrite       WROpcode = 0
	WRWriteImm    WROpcode = 1
	WRSend        WROpcode = 2
	WRSendImm     WROpcode = 3
	WRRead        WROpcode = 4
	WRCompareSwap WROpcode = 5
	WRFetchAdd    WROpcode = 6
	WRLocalInv    WROpcode = 7
	WRBindMW      WROpcode = 8
	WRSendInv     WROpcode = 9
	WRFlush       WROpcode = 14
	WRAtomicWrite WROpcode = 15
)

// SendFlags modify one send work request. Values are those of ibv_send_flags.
type SendFlags uint8

// Send flags.
const (
	SendFence     SendFlags = 1 << 0 // wait until earlier READs and atomics are complete
	SendSignaled  SendFlags = 1 << 1 // make a completion even if QPInit.SigAll is off
	SendSolicited SendFlags = 1 << 2 // ask for an event at the receiver
	SendInline    SendFlags = 1 << 3 // take the payload from Inline now, not from SGL later
)

// SGE names a piece of registered local memory: Length bytes at address Addr of
// the region that LKey names.
type SGE struct {
	Addr   uint64
	Length uint32
	LKey   Key
}

// SendWR is a send work request. Posting copies it, so the caller may use the struct and its slices again at once. The
// memory that SGL names belongs to the device until the request has completed.
type SendWR struct {
	ID     uint64
	Opcode WROpcode
	Flags  SendFlags
	SGL    []SGE
	Inline []byte // payload, with SendInline; at most QPCap.MaxInline bytes

	// Imm is the immediate data of SEND and WRITE with immediate. The receiver gets the same number, whatever the byte
	// order of the hosts.
	Imm uint32
	// InvalidateKey is the key to invalidate: an R_Key of the peer for SEND with invalidate, a key of this end for
	// local invalidate.
	InvalidateKey Key

	// RemoteAddr and RKey name the peer's memory: WRITE, READ, atomics, FLUSH.
	// Atomics need RemoteAddr to be a multiple of 8. With BindMW, RKey is the
	// window's new key.
	RemoteAddr uint64
	RKey       Key

	// Compare is the value that CompareSwap compares with. Swap is the value that CompareSwap stores, or that FetchAdd
	// adds. Both are in host byte order.
	Compare uint64
	Swap    uint64

	// AH, RemoteQPN and RemoteQKey say where a UD request goes. A RemoteQKey
	// with its highest bit set stands for the QP's own Q_Key (IBTA 10.2.5).
	AH         AHNum
	RemoteQPN  QPN
	RemoteQKey uint32

	// RemoteSRQ is the number of the XRC SRQ that a request of an XRC QP is for.
	RemoteSRQ uint32

	Bind  MWBind // with BindMW, for windows of type 2
	Flush Flush  // with FLUSH
}

// Flush says what a FLUSH waits for (IBTA A19.4.2).
type Flush struct {
	Length uint32 // bytes from RemoteAddr on; ignored with FlushRegion
	Extent FlushExtent
	Level  FlushLevel
}

// FlushExtent is the selectivity level of a FLUSH. Values are those of
// ib_selectivity_level.
type FlushExtent uint8

// Selectivity levels.
const (
	FlushRange  FlushExtent = 0 // the bytes that the request names
	FlushRegion FlushExtent = 1 // all of the region
)

// FlushLevel is the placement type of a FLUSH. Values are those of
// ib_placement_type.
type FlushLevel uint8

// Placement types. They may be combined.
const (
	FlushGlobally     FlushLevel = 1 << 0 // all observers see the data
	FlushPersistently FlushLevel = 1 << 1 // the data survives a loss of power
)

// RecvWR is a receive work request. As with SendWR, posting copies it, and the memory of SGL belongs to the device
// until the request has completed.
type RecvWR struct {
	ID  uint64
	SGL []SGE
}

// WCStatus says how a work request ended. Values are those of ibv_wc_status.
type WCStatus uint8

// Completion statuses (IBTA 11.6.2).
const (
	WCSuccess        WCStatus = 0
	WCLocLenErr      WCStatus = 1
	WCLocQPOpErr     WCStatus = 2
	WCLocEECOpErr    WCStatus = 3
	WCLocProtErr     WCStatus = 4
	WCWRFlushErr     WCStatus = 5
	WCMWBindErr      WCStatus = 6
	WCBadRespErr     WCStatus = 7
	WCLocAccessErr   WCStatus = 8
	WCRemInvReqErr   WCStatus = 9
	WCRemAccessErr   WCStatus = 10
	WCRemOpErr       WCStatus = 11
	WCRetryExcErr    WCStatus = 12
	WCRNRRetryExcErr WCStatus = 13
	WCLocRDDViolErr  WCStatus = 14
	WCRemInvRDReqErr WCStatus = 15
	WCRemAbortErr    WCStatus = 16
	WCInvEECNErr     WCStatus = 17
	WCInvEECStateErr WCStatus = 18
	WCFatalErr       WCStatus = 19
	WCRespTimeoutErr WCStatus = 20
	WCGeneralErr     WCStatus = 21
	numWCStatus               = 22
)

// WCOpcode says what kind of work completed. Values are those of ibv_wc_opcode.
type WCOpcode uint8

// Completion opcodes.
const (
	WCSend        WCOpcode = 0
	WCWrite       WCOpcode = 1
	WCRead        WCOpcode = 2
	WCCompareSwap WCOpcode = 3
	WCFetchAdd    WCOpcode = 4
	WCBindMW      WCOpcode = 5
	WCLocalInv    WCOpcode = 6
	WCFlush       WCOpcode = 8
	WCAtomicWrite WCOpcode = 9
	WCRecv        WCOpcode = 128
	WCRecvImm     WCOpcode = 129 // receive consumed by a WRITE with immediate
)

// WCFlags say which fields of a WC are valid. Values are those of ibv_wc_flags.
type WCFlags uint8

// Completion flags.
const (
	WCGRH     WCFlags = 1 << 0 // the first 40 bytes of a UD receive hold the GRH
	WCWithImm WCFlags = 1 << 1
	WCWithInv WCFlags = 1 << 3
)

// Values of WC.SL. The service level does not exist on Ethernet, so mlx5 RNICs tell in this field which header a
// datagram had: bit 3 for RoCEv2, and below it 1 for IPv6 and 2 for IPv4. UCX decides by it how to read the GRH.
const (
	SLIPv6 = 1<<3 | 1
	SLIPv4 = 1<<3 | 2
)

// WC is a work completion. If Status is not WCSuccess only ID, Status, QPN and
// VendorErr are valid.
type WC struct {
	ID             uint64
	Status         WCStatus
	Opcode         WCOpcode
	Flags          WCFlags
	VendorErr      uint32
	ByteLen        uint32 // receives, READs and atomics: bytes placed
	Imm            uint32 // with WCWithImm
	InvalidatedKey Key    // with WCWithInv
	QPN            QPN    // the local QP
	SrcQP          QPN    // UD: the sender
	SL             uint8  // UD receives of software devices: SLIPv6 or SLIPv4; package rnic leaves it 0
	Timestamp      Instant
}

package abi

import (
	"fmt"

	"github.com/goroce/goroce/ib"
)

// Name is a text that ends before its first zero byte, or fills the array.
type Name [64]byte

// NameOf returns s as a Name, cut to 63 bytes.
func NameOf(s string) (n Name) {
	copy(n[:len(n)-1], s)
	return n
}

// String returns the text.
func (n *Name) String() string {
	for i, c := range n {
		if c == 0 {
			return string(n[:i])
		}
	}
	return string(n[:])
}

// Handle identifies an object in the requests of one connection. 0 means no object.
type Handle uint32

// Hello begins a connection.
type Hello struct {
	Magic                  uint32
	MinVersion, MaxVersion uint16 // versions that the client supports
}

// MaxDevices is how many devices a daemon may have.
const MaxDevices = 64

// HelloReply gives the protocol version and the daemon's devices.
type HelloReply struct {
	Version uint16 // used by both from now on
	_       uint16
	Devices uint32 // how many of Names are set; the first is the default
	Names   [MaxDevices]Name
}

// Open chooses the connection's device, once, before any request about the device. An empty name
// chooses the first.
type Open struct{ Device Name }

// DeviceReply describes a device: the reply to OpQueryDevice, whose body is an Open. It needs no
// open device.
type DeviceReply struct {
	Name, Firmware               Name
	NodeGUID, SysImageGUID, Caps uint64
	MaxMRSize                    uint64
	ClockOffset                  int64 // CLOCK_MONOTONIC minus the device's clock, in nanoseconds
	VendorID, VendorPart, HW     uint32
	Ports, Atomic                uint32
	MaxQP, MaxQPWR, MaxSGE       uint32
	MaxInline, MaxCQ, MaxCQE     uint32
	MaxMR, MaxMW, MaxPD, MaxAH   uint32
	MaxSRQ, MaxSRQWR, MaxSRQSGE  uint32
	MaxXRCD                      uint32
	MaxMcastGroup, MaxMcastQP    uint32
	MaxQPRdAtomic                uint32
	MaxQPInitRdAtom              uint32
	LocalCAAckDelay              uint32
	Index                        uint32 // of the device in the daemon; it does not change
	CompVectors                  uint32
}

// OpenReply describes the device. With it comes a descriptor: a socket of asynchronous events, each an
// Event.
//
// A client that is going to have QPs then shares its doorbells (OpShareDoorbells, once): with the request, which
// has no body, comes a memfd with package ring's DoorbellsSize bytes for each shard, and with the reply an
// eventfd for each shard, to write 1 to when Ring says so.
type OpenReply struct {
	DeviceReply
	Shards    uint32
	Doorbells uint32 // for each shard
}

// Event is a message on the socket of asynchronous events.
type Event struct {
	Type   uint32 // as ibv_event_type
	Object Handle // the object concerned; 0 for the device
}

// Completion is a message on the socket of a channel.
type Completion struct{ CQ Handle }

// Port is the body of OpQueryPort, OpGIDs and OpPKey: a port and, for OpPKey, an index.
type Port struct{ Port, Index uint32 }

// PortReply describes a port.
type PortReply struct {
	State, MaxMTU, ActiveMTU uint32
	MaxMsgSize, GIDs         uint32
	Speed                    uint32 // of the network interface, in Mb/s; 0 if unknown
	PhysState, CapFlags      uint32 // as in ibv_port_attr
	NetIf                    Name
}

// MaxGIDs is how many rows a reply to OpGIDs has at most.
const MaxGIDs = 128

// GIDEntry is a row of the GID table; the reply to OpGIDs is a sequence of them.
type GIDEntry struct {
	GID   ib.GID
	Index uint32
	_     uint32
	NetIf Name
}

// PKeyReply is a row of the partition table.
type PKeyReply struct {
	PKey uint16
	_    uint16
}

// ClockReply is the device's time in nanoseconds.
type ClockReply struct{ Now int64 }

// Counter is a counter of a port; the reply to OpCounters, whose body is a Port, is a sequence of
// them. Names are those of files in sysfs.
type Counter struct {
	Name  Name
	Value uint64
	HW    uint32 // 0: in the directory counters, 1: in hw_counters
	_     uint32
}

// MaxCounters is how many a reply to OpCounters has at most.
const MaxCounters = 200

// Object is a reply with the handle of a new object. The reply to OpCreateChannel carries the
// socket of the channel's events.
type Object struct{ Handle Handle }

// Close is the body of OpClose: the object must be of this kind.
type Close struct {
	Handle Handle
	Kind   Kind
}

// Kind is a kind of objects. Those of a kind use only such as have a greater number: by that a daemon closes what a
// client leaves behind.
type Kind uint32

// Kinds of objects.
const (
	KindMembership Kind = 1 + iota
	KindCMID            // before QPs, so that peers are told that a connection ends
	KindCMChannel
	KindQP
	KindSRQ
	KindMW
	KindMR
	KindSharedMemory
	KindAH
	KindCQ
	KindChannel
	KindXRCD
	KindPD
)

var kindText = [...]string{KindMembership: "CM membership", KindCMID: "CM ID", KindCMChannel: "CM channel",
	KindQP: "QP", KindSRQ: "SRQ", KindMW: "MW", KindMR: "MR", KindSharedMemory: "shared memory",
	KindAH: "AH", KindCQ: "CQ", KindChannel: "channel", KindXRCD: "XRCD", KindPD: "PD"}

// String returns the kind's name for messages.
func (k Kind) String() string {
	if int(k) < len(kindText) && kindText[k] != "" {
		return kindText[k]
	}
	return fmt.Sprintf("kind %d", uint32(k))
}

// CloseReply is the reply to OpClose. It counts all events of the object that were sent, also those that the client has
// not read yet. None is sent any more.
type CloseReply struct {
	Completions uint32 // of a CQ, on the socket of its channel
	Events      uint32 // asynchronous ones of a CQ, QP or SRQ; of a CM ID those that were taken
	Signals     uint32 // of a CM ID: messages that the client must take off its channel's socket
}

// AllocXRCD is the body of OpAllocXRCD. With a descriptor the domain belongs to that file, and to all
// connections of the user that name the same file.
type AllocXRCD struct{ Flags uint32 }

// Flags of AllocXRCD, for a domain of a file.
const (
	XRCDCreate    = 1 // make the domain if there is none
	XRCDExclusive = 2 // with XRCDCreate: there must be none
)

// CreateCQ is the body of OpCreateCQ.
type CreateCQ struct {
	Entries    uint32
	Channel    Handle // 0 for none
	CompVector uint32 // the shard that serves the queue; 0 for any
}

// ResizeCQ is the body of OpResizeCQ. The client must not use the queue until the reply
// arrives, and then uses the ring in the memfd that it has sent with the request.
type ResizeCQ struct {
	CQ      Handle
	Entries uint32
}

// Ring describes the rings of an object, which lie in the memfd that came with the request. The rings'
// headers tell the number of entries and their layout. A QP that takes no work requests at all needs no
// memfd.
type Ring struct {
	Handle     Handle
	Num        uint32 // QPN, or the number of an XRC SRQ
	Size       uint64 // bytes of the memfd that the rings take, from its beginning on
	Send, Recv uint64 // QPs: bytes of the send ring, at 0, and of the receive ring behind it
	Shard      uint32 // QPs: the shard with the QP's doorbell
	Doorbell   uint32 // QPs: index of the doorbell there
}

// Kinds of memory.
const (
	// MemFD is memory at offset Addr of a memfd that was shared (OpShareMemory), whose handle is File.
	MemFD = 1
	// MemProcess is memory of the client's process at address Addr. The request carries a
	// descriptor of /proc/self/mem, opened by the client for reading and writing; without
	// it a daemon of another user refuses the request.
	MemProcess = 2
)

// Stays says why memory of the client's process is not in a memfd: enum goroce_stays of goroce.h. The libraries for
// programs in C move memory to one if nothing can be lost by that.
type Stays uint32

var stays = [...]string{
	1:  "GOROCE_MR=process",
	2:  "registered on demand",
	3:  "short",
	4:  "64 MiB are moved already",
	5:  "the program ends regions often",
	6:  "something else is in its pages",
	7:  "of the thread itself",
	8:  "the daemon may write to its pages for another region",
	9:  "madvise has marked pages, or libgoroce-sys.so is not loaded",
	10: "other threads run, and userfaultfd cannot make them wait",
	11: "the kernel may store into it by itself: io_uring, asynchronous I/O, a device",
	12: "locked by mlock",
	13: "not plain private memory",
	14: "the daemon did not take the file",
}

// String returns the reason in words, "" if there is none.
func (s Stays) String() string {
	if int64(s) < int64(len(stays)) {
		return stays[s]
	}
	return ""
}

// RegMR is the body of OpRegMR.
//
// For regions of a memfd the client shares that first: OpShareMemory has no body, and carries the memfd; the reply
// is an Object. A region keeps the memfd mapped, also when the handle is closed. As long as there is a handle, or a
// region, connections of the same user can share the memfd again, which nobody else can map any more.
type RegMR struct {
	PD           Handle
	Access       uint32
	Kind         uint32
	File         Handle // of MemFD; of MemProcess a Stays
	Addr, Length uint64
	IOVA         uint64 // address that work requests use for the first byte
}

// RegReply gives the handle and the key of a new object, or of a region that was registered anew.
type RegReply struct{ Handle, Key Handle }

// ReregMR is the body of OpReregMR.
type ReregMR struct {
	MR   Handle
	Mask uint32 // as ibv_rereg_mr_flags, with KeepKeys
	RegMR
}

// KeepKeys in ReregMR.Mask leaves the region its keys.
const KeepKeys = 1 << 31

// AllocMW is the body of OpAllocMW; the reply is a RegReply.
type AllocMW struct {
	PD   Handle
	Type uint32
}

// AH is an address vector.
type AH struct {
	DGID                       ib.GID
	SGIDIndex, Port, FlowLabel uint32
	TrafficClass, HopLimit     uint8
	_                          uint16
}

// CreateAH is the body of OpCreateAH. The reply is a RegReply, whose Key is the AH's number in work requests.
type CreateAH struct {
	PD Handle
	AH AH
}

// ModifyAH is the body of OpModifyAH.
type ModifyAH struct {
	Handle Handle
	AH     AH
}

// CreateSRQ is the body of OpCreateSRQ.
type CreateSRQ struct {
	PD, XRCD, CQ         Handle
	Type                 uint32
	MaxWR, MaxSGE, Limit uint32
}

// SRQAttr is the body of OpModifySRQ and the reply to OpQuerySRQ. If the size changes, a memfd for the new
// ring comes with the request, as with OpResizeCQ, and the reply is a Ring.
type SRQAttr struct {
	SRQ                  Handle
	Mask                 uint32 // as ibv_srq_attr_mask
	MaxWR, MaxSGE, Limit uint32
}

// CreateQP is the body of OpCreateQP.
type CreateQP struct {
	PD, SendCQ, RecvCQ, SRQ, XRCD     Handle
	Type                              uint32
	MaxSendWR, MaxRecvWR              uint32
	MaxSendSGE, MaxRecvSGE, MaxInline uint32
	SigAll                            uint32
}

// OpenQP is the body of OpOpenQP, which opens an XRC target QP that another connection has made in the
// domain.
type OpenQP struct {
	XRCD Handle
	QPN  uint32
	Type uint32
}

// QPAttr is the body of OpModifyQP and the reply to OpQueryQP.
type QPAttr struct {
	QP                                       Handle
	Mask                                     uint32 // as ibv_qp_attr_mask
	State, CurState, Port, PKeyIndex         uint32
	Access, QKey                             uint32
	AH                                       AH
	PathMTU, DestQPN, RQPSN, SQPSN           uint32
	MaxRdAtomic, MaxDestRdAtomic             uint32
	MinRNRTimer, Timeout, RetryCnt, RNRRetry uint32
	RateLimit, SQDNotify, Draining           uint32
	MaxSendWR, MaxRecvWR                     uint32
	MaxSendSGE, MaxRecvSGE, MaxInline        uint32
}

// QPFailure is the reply to OpQPFailure: why the QP went to ERR or SQE last, and why it last refused a request of its
// peer.
type QPFailure struct {
	Failed, Refused Failure
}

// Failure is an ib.Failure. Text is its cause as a sentence, which ends with a zero byte.
type Failure struct {
	At                         int64 // on the device's clock
	Since                      int64
	Addr, Length, Start, Size  uint64
	Reason, Op, Peer, PSN      uint32
	Key, Need, Have, Ended, By uint32
	Tries, Answers, Errno      uint32
	Text                       [256]byte
}

// Group is the body of OpAttach and OpDetach.
type Group struct {
	QP  Handle
	GID ib.GID
}

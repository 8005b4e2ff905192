package ib

import (
	"context"

	"github.com/goroce/goroce/ib/internal/seal"
)

// Device is an open RDMA device: a software device, a device of the daemon, or a real NIC.
//
// All methods of all objects may be called from several goroutines at once. Close of every object is idempotent. It
// fails with ErrBusy while other objects use the object; only Close of the Device closes everything that the Device
// holds. A method that a device does not support fails with ErrNotSupported; Attr().Caps tells it beforehand.
type Device interface {
	seal.Sealed
	Attr() DeviceAttr
	// QueryPort returns the current attributes of a port. EventPortActive and EventPortErr report changes of its state;
	// no event reports a change of its active MTU.
	QueryPort(port int) (PortAttr, error)
	// GIDs returns the rows of the port's GID table that are in use, so the position of an entry in the slice is not
	// its Index. Addresses come and go (EventGIDChange); an address keeps its index for as long as it stays.
	GIDs(port int) ([]GIDEntry, error)
	// PKey returns an entry of the port's partition table.
	PKey(port, index int) (uint16, error)
	// Clock returns the current time of the clock that WC.Timestamp is taken from.
	Clock() (Instant, error)

	AllocPD() (PD, error)
	AllocXRCD() (XRCD, error)
	CreateChannel() (Channel, error)
	CreateCQ(CQInit) (CQ, error)

	// NextEvent waits for an asynchronous event.
	NextEvent(ctx context.Context) (Event, error)
	Close() error
}

// Allocator is a Device that prefers to allocate the memory that is registered with it. A device of the daemon reaches
// memory from Alloc fastest, and may be configured to accept no other.
type Allocator interface {
	// Alloc returns size bytes, zeroed and aligned to a page.
	Alloc(size int) ([]byte, error)
	// Free releases what Alloc has returned. The regions on it must be closed, and nobody may use it any more.
	Free(buf []byte) error
}

// PD is a protection domain: a QP reaches only memory that is registered in its own domain (IBTA 10.2.3).
type PD interface {
	seal.Sealed
	// RegMR registers memory. Registering the same bytes twice is legal.
	RegMR(MRInit) (MR, error)
	AllocMW(MWType) (MW, error)
	CreateAH(AHAttr) (AH, error)
	CreateSRQ(SRQInit) (SRQ, error)
	CreateQP(QPInit) (QP, error)
	Close() error
}

// CQInit says what completion queue to create.
type CQInit struct {
	Entries int // at least this many
	// Channel is where the events of the armed CQ go, for applications that wait for several CQs at once. Without one,
	// CQ.Wait waits.
	Channel Channel
	// CompVector is the completion vector, from 0 to DeviceAttr.CompVectors-1. For a software device it is the shard
	// that serves the queue, and 0 leaves the choice to the device.
	CompVector int
}

// CQ is a completion queue. When a completion finds the CQ full, EventCQErr is raised and the CQ cannot be used any
// more: make it large enough for all requests that can be outstanding.
type CQ interface {
	seal.Sealed
	// Poll moves up to len(wcs) completions out of the queue and returns their number; 0 means that the queue is empty.
	// It does not block.
	Poll(wcs []WC) (int, error)
	// Wait is Poll that waits until there is a completion. It arms the CQ and polls again by itself. Several goroutines
	// may wait at once; each completion goes to one of them. If ctx ends while the CQ is empty, the error matches
	// ctx.Err(). ErrClosed if the CQ or the device is closed, ErrState if the CQ has a Channel, ErrInvalid if wcs has
	// no room.
	Wait(ctx context.Context, wcs []WC) (int, error)
	// Arm requests one event on the channel, for the next completion to arrive; with solicitedOnly, for the next one
	// that is solicited or failed (IBTA 11.4.2.2). Completions that are in the queue already raise no event, so poll
	// once more after Arm; Wait does all this.
	Arm(solicitedOnly bool) error
	Entries() int
	// Resize changes the capacity to at least entries. Completions in the queue are kept;
	// a capacity that is too small for them is ErrInvalid.
	Resize(entries int) error
	Close() error
}

// Channel is a completion channel: it delivers the events of armed CQs.
type Channel interface {
	seal.Sealed
	// Wait waits for an event and returns its CQ: one that was armed and has got a completion since.
	Wait(ctx context.Context) (CQ, error)
	Close() error
}

// QPInit says what QP to create.
type QPInit struct {
	Type   QPType
	SendCQ CQ
	RecvCQ CQ
	SRQ    SRQ  // if not nil, receives come from here: RC, UC and UD
	XRCD   XRCD // XRCTGT: the domain whose SRQs requests may name
	Cap    QPCap
	SigAll bool // each send request makes a completion
}

// QP is a queue pair.
type QP interface {
	seal.Sealed
	Num() QPN
	Type() QPType
	// Modify moves the QP through its states. A refused attribute is reported
	// as *AttrError and leaves the QP as it was.
	Modify(attr QPAttr, mask QPAttrMask) error
	Query() (QPAttr, error)
	// Failure returns why the QP went to ERR or SQE last, and why it last refused a request of the peer. Their reasons
	// are ReasonNone if it never has, and on devices that do not know (package rnic).
	Failure() (failed, refused Failure, err error)
	// PostSend posts the requests in order and returns how many were accepted. It is fewer than len(wrs) only if the
	// error, which is about the next one, is not nil.
	PostSend(wrs []SendWR) (int, error)
	// PostRecv posts receive requests, with the same results as PostSend.
	PostRecv(wrs []RecvWR) (int, error)
	// AttachMulticast adds a UD QP to a multicast group, whose GID is a multicast IP address. A QP that is attached
	// already stays so.
	AttachMulticast(group GID) error
	DetachMulticast(group GID) error
	Close() error
}

// DeviceAttr describes a device and its limits.
type DeviceAttr struct {
	Name            string
	FirmwareVersion string
	NodeGUID        uint64
	SysImageGUID    uint64
	VendorID        uint32
	VendorPartID    uint32
	HWVersion       uint32
	Ports           int

	Caps   DeviceCaps
	Atomic AtomicCap

	MaxQP           int
	MaxQPWR         int
	MaxSGE          int
	MaxInline       int
	MaxCQ           int
	MaxCQE          int
	CompVectors     int // completion vectors
	MaxMR           int
	MaxMRSize       uint64
	MaxMW           int
	MaxPD           int
	MaxAH           int
	MaxSRQ          int
	MaxSRQWR        int
	MaxSRQSGE       int
	MaxXRCD         int
	MaxMcastGroup   int // multicast groups with members on this device
	MaxMcastQP      int // QPs in one group
	MaxQPRdAtomic   int // responder resources of one QP
	MaxQPInitRdAtom int // initiator depth of one QP
	LocalCAAckDelay int // an answer may take up to 4.096 us * 2^n to leave
}

// DeviceCaps says what a device can do beyond the basic verbs. Values are those
// of ib_device_cap_flags, where it has them.
type DeviceCaps uint64

// Device capabilities.
const (
	CapMemWindow       DeviceCaps = 1 << 17 // windows of type 1
	CapXRC             DeviceCaps = 1 << 20
	CapLocalInv        DeviceCaps = 1 << 21 // LOCAL INVALIDATE and SEND with invalidate
	CapMemWindow2B     DeviceCaps = 1 << 24 // windows of type 2, bound to a QP
	CapFlushGlobal     DeviceCaps = 1 << 38
	CapFlushPersistent DeviceCaps = 1 << 39
	CapAtomicWrite     DeviceCaps = 1 << 40
	CapCM              DeviceCaps = 1 << 59 // the Device is a CMDevice
	CapMulticast       DeviceCaps = 1 << 60
	CapRereg           DeviceCaps = 1 << 61 // Rereg of address and length; rights and PD always may change
	CapTimestamp       DeviceCaps = 1 << 62 // WC.Timestamp and Clock
)

// AtomicCap says what else the device's atomics are atomic with. Values are those of ibv_atomic_cap.
type AtomicCap uint8

// Atomicity of CAS and FAA.
const (
	AtomicNone   AtomicCap = 0 // no atomics at all
	AtomicHCA    AtomicCap = 1 // other atomics of the same device
	AtomicGlobal AtomicCap = 2 // also processors and other devices
)

// String returns the name that ibv_devinfo prints.
func (c AtomicCap) String() string { return name(atomicCapText[:], int(c), "AtomicCap") }

var atomicCapText = [...]string{"ATOMIC_NONE", "ATOMIC_HCA", "ATOMIC_GLOB"}

// PortState is the state of a port. Values are those of ibv_port_state.
type PortState uint8

// Port states.
const (
	PortDown   PortState = 1
	PortActive PortState = 4
)

// String returns the name that ibv_devinfo prints.
func (s PortState) String() string {
	switch s {
	case PortDown:
		return "PORT_DOWN"
	case PortActive:
		return "PORT_ACTIVE"
	}
	return name(nil, int(s), "PortState")
}

// PhysState is the state of a port's link. Values are those of ibv_port_attr.phys_state.
type PhysState uint8

// Physical states.
const (
	PhysPolling  PhysState = 2 // no carrier
	PhysDisabled PhysState = 3
	PhysLinkUp   PhysState = 5
)

// String returns the name that rdma link prints.
func (s PhysState) String() string { return name(physStateText[:], int(s), "PhysState") }

var physStateText = [...]string{PhysPolling: "POLLING", PhysDisabled: "DISABLED", PhysLinkUp: "LINK_UP"}

// PortCaps says what a port can do. Values are those of ibv_port_cap_flags.
type PortCaps uint32

// Port capabilities.
const (
	PortCM          PortCaps = 1 << 16 // connection management
	PortIPBasedGIDs PortCaps = 1 << 26
)

// PortAttr describes a port.
type PortAttr struct {
	State       PortState
	PhysState   PhysState
	Caps        PortCaps
	Speed       int // Mb/s; 0 if it is not known
	MaxMTU      MTU
	ActiveMTU   MTU
	MaxMsgSize  uint32
	GIDTableLen int // rows, those not in use included
	NetIf       string
}

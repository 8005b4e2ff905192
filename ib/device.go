package ib

import "context"

// Device is an open RDMA device: the software one, the daemon's client, or a
// real NIC. All methods of all objects may be called from several goroutines at
// once. Close of every object is idempotent; it fails with ErrBusy while other
// objects use it, except that closing the Device closes all that it holds.
// A method that a device lacks fails with ErrNotSupported; Attr().Caps says so
// beforehand.
type Device interface {
	Attr() DeviceAttr
	// QueryPort describes a port as it is now. EventPortActive and EventPortErr tell
	// when its state changes; for its active MTU there is no event.
	QueryPort(port int) (PortAttr, error)
	// GIDs returns the port's GID table, less the rows that are empty: an entry's
	// place is not its Index. Addresses come and go (EventGIDChange); an address has
	// the same index for as long as it stays.
	GIDs(port int) ([]GIDEntry, error)
	// PKey returns a row of the port's partition table.
	PKey(port, index int) (uint16, error)
	// Clock returns the time on the clock that stamps completions
	// (WC.Timestamp).
	Clock() (Instant, error)

	AllocPD() (PD, error)
	AllocXRCD() (XRCD, error)
	CreateChannel() (Channel, error)
	CreateCQ(CQInit) (CQ, error)

	// NextEvent waits for an asynchronous event.
	NextEvent(ctx context.Context) (Event, error)
	Close() error
}

// Allocator is a Device that has a wish where memory lies that is registered with it: a
// daemon's device reaches what Alloc returns quickest, and may be allowed nothing else.
type Allocator interface {
	// Alloc returns size zero bytes, on a page boundary.
	Alloc(size int) ([]byte, error)
	// Free gives back what Alloc has returned. Nobody uses it any more, and its regions are
	// closed.
	Free(buf []byte) error
}

// PD is a protection domain: QPs reach only the memory of their own.
type PD interface {
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
	Entries int     // at least this many; rounded up to a power of two
	Channel Channel // where armed events go; nil for none
}

// CQ is a completion queue. A CQ that overruns raises EventCQErr and is dead:
// give it room for everything that can be outstanding.
type CQ interface {
	// Poll moves up to len(wcs) completions out of the queue and returns how
	// many; 0 means that there is none. It does not block.
	Poll(wcs []WC) (int, error)
	// Arm asks for one event on the channel when the next completion arrives,
	// or with solicitedOnly, the next solicited or failed one. Completions that
	// were in the queue before do not count: poll once more after arming.
	Arm(solicitedOnly bool) error
	Entries() int
	// Resize changes the capacity to at least entries, rounded up to a power of
	// two. What is in the queue stays; less room than that is ErrInvalid.
	Resize(entries int) error
	Close() error
}

// Channel delivers the events of armed CQs.
type Channel interface {
	// Wait returns a CQ that was armed and has got a completion since.
	Wait(ctx context.Context) (CQ, error)
	Close() error
}

// QPInit says what QP to create.
type QPInit struct {
	Type   QPType
	SendCQ CQ
	RecvCQ CQ
	SRQ    SRQ  // receives come from here, if not nil: RC, UC and UD
	XRCD   XRCD // XRCTGT: the domain whose SRQs requests may name
	Cap    QPCap
	SigAll bool // every send request makes a completion
}

// QP is a queue pair.
type QP interface {
	Num() QPN
	Type() QPType
	// Modify moves the QP through its states. A refused attribute is reported
	// as *AttrError and leaves the QP as it was.
	Modify(attr QPAttr, mask QPAttrMask) error
	Query() (QPAttr, error)
	// PostSend posts the requests in order and returns how many were accepted;
	// fewer than len(wrs) only together with the error for the next one.
	PostSend(wrs []SendWR) (int, error)
	// PostRecv does the same for receive requests.
	PostRecv(wrs []RecvWR) (int, error)
	// AttachMulticast adds a UD QP to a multicast group: a GID that is a
	// multicast IP address. Attaching twice is the same as once.
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
	MaxMR           int
	MaxMRSize       uint64
	MaxMW           int
	MaxPD           int
	MaxAH           int
	MaxSRQ          int
	MaxSRQWR        int
	MaxSRQSGE       int
	MaxXRCD         int
	MaxMcastGroup   int // multicast groups of the device
	MaxMcastQP      int // QPs in one group
	MaxQPRdAtomic   int // responder resources of one QP
	MaxQPInitRdAtom int // initiator depth of one QP
	LocalCAAckDelay int // 4.096 us * 2^n may pass until an answer leaves
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

// AtomicCap says whom the device's atomics are atomic with. Values are those of
// ibv_atomic_cap.
type AtomicCap uint8

// Atomicity of CAS and FAA.
const (
	AtomicNone   AtomicCap = 0 // no atomics
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

// PortAttr describes a port.
type PortAttr struct {
	State       PortState
	MaxMTU      MTU
	ActiveMTU   MTU
	MaxMsgSize  uint32
	GIDTableLen int // rows, the empty ones included
	NetIf       string
}

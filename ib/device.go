package ib

import "context"

// Device is an open RDMA device: the software one, the daemon's client, or a
// real NIC. All methods of all objects may be called from several goroutines at
// once. Close of every object is idempotent; it fails with ErrBusy while other
// objects use it, except that closing the Device closes all that it holds.
type Device interface {
	Attr() DeviceAttr
	QueryPort(port int) (PortAttr, error)
	// GIDs returns the port's GID table.
	GIDs(port int) ([]GIDEntry, error)

	AllocPD() (PD, error)
	CreateChannel() (Channel, error)
	CreateCQ(CQInit) (CQ, error)

	// NextEvent waits for an asynchronous event.
	NextEvent(ctx context.Context) (Event, error)
	Close() error
}

// PD is a protection domain: QPs reach only the memory of their own.
type PD interface {
	// RegMR registers memory. Registering the same bytes twice is legal.
	RegMR(MRInit) (MR, error)
	CreateQP(QPInit) (QP, error)
	Close() error
}

// MRInit says what memory to register.
type MRInit struct {
	// Buf is the memory. The caller keeps it alive and unmoved until Close.
	Buf []byte
	// IOVA is the address by which SGEs and peers name Buf[0]; 0 takes the
	// address of Buf[0] in this process.
	IOVA uint64
	// Access holds the rights; RemoteWrite and RemoteAtomic need LocalWrite too.
	Access Access
}

// MR is a registered memory region.
type MR interface {
	Addr() uint64 // address of the first byte, for SGE.Addr and SendWR.RemoteAddr
	Len() int
	LKey() Key
	RKey() Key
	// Close revokes the keys. When it returns the device touches the memory no more.
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
	Close() error
}

// Channel delivers the events of armed CQs.
type Channel interface {
	// Wait returns a CQ that was armed and has got a completion since.
	Wait(ctx context.Context) (CQ, error)
	Close() error
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

	MaxQP           int
	MaxQPWR         int
	MaxSGE          int
	MaxInline       int
	MaxCQ           int
	MaxCQE          int
	MaxMR           int
	MaxMRSize       uint64
	MaxPD           int
	MaxQPRdAtomic   int // responder resources of one QP
	MaxQPInitRdAtom int // initiator depth of one QP
	LocalCAAckDelay int
}

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
	GIDTableLen int
	NetIf       string
}

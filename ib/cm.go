package ib

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"syscall"
	"time"

	"github.com/goroce/goroce/ib/internal/seal"
)

// CMDevice is a Device with a connection manager (CapCM): it connects queue pairs by IP
// address and port, as librdmacm and the kernel's rdma_ucm do. Package rdmacm has Dial and
// Listen on top of it.
//
// This is how a connection is established and ended. The right column of each end has the events that it waits for.
//
//	active                                 passive
//	                                       Bind, Listen
//	ResolveAddr   CMAddrResolved
//	ResolveRoute  CMRouteResolved
//	QP to INIT
//	Connect                                              CMConnectRequest, with a new ID
//	                                       QP to INIT, RTR, RTS
//	                                       Accept, or Reject
//	              CMConnectResponse
//	QP to RTR, RTS
//	Establish                                            CMEstablished
//	  ...
//	Disconnect    CMDisconnected           Disconnect    CMDisconnected
//	QP to ERR     CMTimewaitExit           QP to ERR     CMTimewaitExit
//
// InitQPAttr returns the attributes for each Modify. The manager retransmits messages, answers those of peers and keeps
// timewait, whatever the application does.
//
// For datagrams, an ID of type UD asks for the queue pair of a service (SIDR, IBTA 12.11): Connect sends the question,
// and CMEstablished has the answer. The passive end answers CMConnectRequest by Accept or Reject.
type CMDevice interface {
	Device
	// OpenCM opens an event channel (rdma_create_event_channel).
	OpenCM() (CM, error)
}

// CM is an event channel of a connection manager, with the IDs made on it. All methods of a CM and its IDs may be
// called from several goroutines at once; only NextEvent blocks.
type CM interface {
	seal.Sealed
	// CreateID creates an ID (rdma_create_id), which the caller must close. ErrLimit if the owner has too many.
	CreateID(CMIDInit) (CMID, error)
	// NextEvent waits for the next event of the channel's IDs (rdma_get_cm_event). The caller owns the event's slices.
	// If an event is there it is returned even if ctx has ended. ErrClosed if the channel or the device is closed.
	NextEvent(ctx context.Context) (CMEvent, error)
	// Close closes the channel and all of its IDs, also those in unread events.
	Close() error
}

// CMIDInit says what an ID is used for.
type CMIDInit struct {
	Space PortSpace // port space of its ports; 0 stands for PortSpaceTCP, with UD for PortSpaceUDP
	Type  QPType    // RC, UC or UD; 0 stands for RC, in PortSpaceUDP and PortSpaceIPoIB for UD

	// ServiceID, if not 0, is used instead of a service ID made of Space and the port. If it is not the service ID of
	// any port, its messages have no rdma_cm header, which leaves 36 bytes more for private data.
	ServiceID uint64
}

// CMID is an identifier of the connection manager (rdma_cm_id): a listener, or one end of
// a connection or of a datagram service.
//
// A method that is called in the wrong state fails with ErrState. IPv4 addresses are not in IPv6-mapped form. An IPv6
// link-local address may have a zone, the name of the device's network interface; with another one Bind fails with
// ErrNoAddr, and ResolveAddr with ErrNoRoute. Other addresses have no zone.
type CMID interface {
	seal.Sealed
	// Bind gives the ID a local address. Port 0 chooses a free one, 32768 to 60999; if there is none, or the owner may
	// have no more, the error is ErrNoPort. The unspecified IPv4 address stands for all IPv4 addresses, the unspecified
	// IPv6 address for all addresses unless CMOptionAFOnly is set. A loopback address stands for the device's first
	// address of the family, unless the device has that loopback address.
	//
	// A port that another ID has is ErrAddrInUse, unless both IDs have CMOptionReuseAddr or different addresses; an
	// unspecified address equals every address of its families. An address that the device does not have is ErrNoAddr;
	// a port that the owner may not use is ErrPermission.
	Bind(local netip.AddrPort) error
	// Listen accepts requests for the ID's port. Each raises CMConnectRequest with a new ID of the type that the peer
	// asks for, RC or UC, even if the listener has the other type (rdma_ucm: only the listener's own). An ID that is
	// not bound is bound first. At most backlog requests wait to be read from the channel; 0 stands for the owner's
	// limit. More are ignored: their senders repeat them, and so get in when there is room. If another ID listens on
	// the port, the error is ErrAddrInUse even with CMOptionReuseAddr.
	Listen(backlog int) error

	// ResolveAddr chooses the local address from which to reach dst, and a port for it, unless the ID is bound. IDs
	// with other destinations may have the same port. local may be zero, or have zero fields. It raises CMAddrResolved
	// or CMAddrError within timeout.
	ResolveAddr(local, dst netip.AddrPort, timeout time.Duration) error
	// ResolveRoute finds the route to that address. It raises CMRouteResolved or CMRouteError.
	ResolveRoute(timeout time.Duration) error

	// Connect requests a connection, or with UD asks for a datagram service. It raises CMConnectResponse (UD:
	// CMEstablished), CMRejected or CMUnreachable.
	Connect(CMConnParam) error
	// Accept answers CMConnectRequest. It raises CMEstablished, CMRejected or CMUnreachable; with UD nothing. Take the
	// QP to RTS first.
	Accept(CMConnParam) error
	// Establish answers CMConnectResponse; the peer gets CMEstablished. Take the QP to RTS first.
	Establish() error
	// Reject answers CMConnectRequest or CMConnectResponse.
	Reject(CMReject) error
	// Delay tells the peer that the answer to CMConnectRequest will take up to d (a MRA, IBTA 12.6.6). Devices whose
	// connection manager does so by itself fail with ErrNotSupported.
	Delay(d time.Duration) error
	// Disconnect ends a connection. It raises CMDisconnected, and later CMTimewaitExit. It is no error if the
	// connection is not established yet, or has ended, or if the ID is a listener at an address of the device. The QP
	// is not modified.
	Disconnect() error
	// Notify passes on an asynchronous event of the QP (rdma_notify). EventCommEst says that data have arrived, so the
	// peer is ready: it raises CMEstablished if nothing has yet. Other events have no effect. Without a connection or
	// a request it is ErrState.
	Notify(EventType) error

	// JoinMulticast joins a group, on an ID of type UD with a local address. It raises CMMulticastJoin or
	// CMMulticastError. The QP must be attached to the group separately (QP.AttachMulticast). An ID may join a group
	// several times; as many leaves undo that.
	JoinMulticast(group netip.Addr) error
	// LeaveMulticast undoes a join, and drops its event if that is unread.
	LeaveMulticast(group netip.Addr) error

	// InitQPAttr returns the attributes for Modify that take the QP to a state (rdma_init_qp_attr): StateInit at any
	// time, StateRTR and StateRTS after CMConnectRequest or CMConnectResponse. Fields that the QP's type does not have
	// are set, but not in the mask.
	InitQPAttr(QPState) (QPAttr, QPAttrMask, error)
	// SetOption sets an option.
	SetOption(CMOption, int) error
	// Query describes the ID.
	Query() (CMIDAttr, error)
	// Migrate moves the ID, with its unread events, to another channel of the same owner
	// (rdma_migrate_id).
	Migrate(to CM) error
	// Close ends the ID: it disconnects a connection, rejects a request, and ends a listener, whose unread requests are
	// rejected. Unread events of the ID are dropped.
	Close() error
}

// CMConnParam is what one end contributes to a connection (rdma_conn_param); in an event, what the peer has
// contributed.
type CMConnParam struct {
	QPN  QPN    // a QP of the owner; in events, of the peer
	QKey uint32 // UD: of that QP; 0 stands for DefaultCMQKey
	SRQ  bool   // the QP takes its receives from an SRQ

	// ResponderResources is how many READs and atomics this end accepts at a time, InitiatorDepth how many it wants to
	// have outstanding. Those of the passive end count for both, as in Linux; it should choose no more than the active
	// end has asked for. In events they are as the receiver sees them: ResponderResources is what the peer wants to
	// have outstanding.
	ResponderResources, InitiatorDepth uint8
	RetryCount                         uint8 // of both ends' QPs, chosen by the active end; more than 7 counts as 7
	RNRRetry                           uint8 // the same for RNR NAKs, chosen by each end for the other; 7: any number

	// PrivateData is sent to the peer: at most 56 bytes with Connect (UD: 180), 196 with Accept (UD: 136). In events it
	// is the whole field of the message, padded with zeros.
	PrivateData []byte

	// Timeout limits how long Connect retransmits; 0 stands for the manager's default, 15 retransmissions in some 22
	// seconds. Devices that cannot limit it ignore it (rdma_ucm has no such parameter).
	Timeout time.Duration
}

// CMReject has the arguments of Reject.
type CMReject struct {
	// Reason is the reason of the REJ; 0 stands for RejectConsumer. rdma_ucm supports RejectConsumer and
	// RejectVendorOption only. For a datagram service it is translated to SIDRUnsupported, SIDRNoQP or SIDRReject.
	Reason      RejectReason
	Info        []byte // additional reject information, at most 72 bytes
	PrivateData []byte // at most 148 bytes; UD: 136
}

// DefaultCMQKey is the Q_Key of datagram services and multicast groups (RDMA_UDP_QKEY).
const DefaultCMQKey = 0x01234567

// CMEvent is an event of an ID.
type CMEvent struct {
	Type     CMEventType
	ID       CMID
	Listener CMID // CMConnectRequest: the listener; ID is new, on the listener's channel, and the reader must close it

	// Status is the cause, as in rdma_cm: see RejectReason, SIDRStatus and Errno.
	Status int
	// Param is the peer's, in CMConnectRequest, CMConnectResponse and CMEstablished. Its PrivateData is also set in
	// CMRejected, CMUnreachable and CMDisconnected.
	Param CMConnParam
	AH    AHAttr     // UD: where to send datagrams, in CMConnectRequest, CMEstablished and CMMulticastJoin
	Group netip.Addr // CMMulticastJoin, CMMulticastError
	Info  []byte     // CMRejected: additional reject information
	Tries int        // CMUnreachable: how often the message was sent, if known
}

// RejectReason returns the reason of the peer's REJ (IBTA 12.6.7.2) that CMRejected reports; 0 for other events.
func (e *CMEvent) RejectReason() RejectReason {
	if e.Type != CMRejected {
		return 0
	}
	return RejectReason(e.Status)
}

// SIDRStatus returns the status of the SIDR_REP that refuses, 1 to 5 (IBTA 12.11.2.2), if CMUnreachable reports one; 0
// for other events.
func (e *CMEvent) SIDRStatus() SIDRStatus {
	if e.Type != CMUnreachable || e.Status < 0 {
		return 0
	}
	return SIDRStatus(e.Status)
}

// Errno returns the Linux error number of an event that reports one, 0 for others. CMUnreachable has ETIMEDOUT, or what
// the network says of the peer: ECONNREFUSED (its UDP port 4791 is closed), EHOSTUNREACH, ENETUNREACH.
func (e *CMEvent) Errno() syscall.Errno { return syscall.Errno(max(-e.Status, 0)) }

// CMEventType says what happened. Values are those of rdma_cm_event_type.
type CMEventType uint8

// Events of the connection manager.
const (
	CMAddrResolved    CMEventType = 0
	CMAddrError       CMEventType = 1
	CMRouteResolved   CMEventType = 2
	CMRouteError      CMEventType = 3
	CMConnectRequest  CMEventType = 4 // a peer wants to connect: Accept or Reject
	CMConnectResponse CMEventType = 5 // the peer has accepted: Establish or Reject
	CMConnectError    CMEventType = 6
	CMUnreachable     CMEventType = 7 // no answer
	CMRejected        CMEventType = 8
	CMEstablished     CMEventType = 9
	CMDisconnected    CMEventType = 10
	CMDeviceRemoval   CMEventType = 11 // the device is closed
	CMMulticastJoin   CMEventType = 12
	CMMulticastError  CMEventType = 13
	CMAddrChange      CMEventType = 14 // the port has lost the ID's address
	CMTimewaitExit    CMEventType = 15 // no packet of the connection is in the network any more
	numCMEventTypes               = 16
)

// String returns the name of rdma_event_str.
func (t CMEventType) String() string { return name(cmEventText[:], int(t), "CMEventType") }

var cmEventText = [numCMEventTypes]string{
	"RDMA_CM_EVENT_ADDR_RESOLVED", "RDMA_CM_EVENT_ADDR_ERROR", "RDMA_CM_EVENT_ROUTE_RESOLVED",
	"RDMA_CM_EVENT_ROUTE_ERROR",
	"RDMA_CM_EVENT_CONNECT_REQUEST", "RDMA_CM_EVENT_CONNECT_RESPONSE", "RDMA_CM_EVENT_CONNECT_ERROR",
	"RDMA_CM_EVENT_UNREACHABLE",
	"RDMA_CM_EVENT_REJECTED", "RDMA_CM_EVENT_ESTABLISHED", "RDMA_CM_EVENT_DISCONNECTED", "RDMA_CM_EVENT_DEVICE_REMOVAL",
	"RDMA_CM_EVENT_MULTICAST_JOIN", "RDMA_CM_EVENT_MULTICAST_ERROR", "RDMA_CM_EVENT_ADDR_CHANGE",
	"RDMA_CM_EVENT_TIMEWAIT_EXIT",
}

// CMOption is an option of an ID. Values are those of RDMA_OPTION_ID_*, except CMOptionPathMTU.
type CMOption int

// Options.
const (
	CMOptionTOS CMOption = 0 // traffic class of the path, 0 to 255; set it before ResolveRoute
	// 1: Bind may share a port with other IDs that have the option; set it before Bind
	CMOptionReuseAddr CMOption = 1
	CMOptionAFOnly    CMOption = 2 // 1: the unspecified IPv6 address is for IPv6 only; set it before Bind
	// 5-bit code of the local ACK timeout of both ends (default 16); set it before Connect
	CMOptionAckTimeout CMOption = 3
	// bytes (default: the port's active MTU; RDMA_OPTION_IB_PATH); set it before Connect
	CMOptionPathMTU CMOption = 1<<16 | 1
)

// CMIDAttr describes an ID.
type CMIDAttr struct {
	Space     PortSpace
	Type      QPType
	ServiceID uint64         // CMIDInit.ServiceID
	Local     netip.AddrPort // zero before the ID is bound
	Remote    netip.AddrPort // zero before ResolveAddr; port 0 if the peer's port is not known
	PathMTU   MTU            // of the route, like AH; on the passive end, of the request
	AH        AHAttr         // valid if the ID has both addresses
}

// PortSpace is the part of a service ID that says what the ports mean (Linux's enum rdma_ucm_port_space).
type PortSpace uint16

// Port spaces of rdma_cm.
const (
	PortSpaceIPoIB PortSpace = 0x0002
	PortSpaceTCP   PortSpace = 0x0106 // connections
	PortSpaceUDP   PortSpace = 0x0111 // datagrams
	PortSpaceIB    PortSpace = 0x013F
)

// ServiceID returns the service ID of a port (IBTA A11.2).
func (s PortSpace) ServiceID(port uint16) uint64 { return uint64(s)<<16 | uint64(port) }

// String returns the name of the port space.
func (s PortSpace) String() string {
	switch s {
	case PortSpaceIPoIB:
		return "IPoIB"
	case PortSpaceTCP:
		return "TCP"
	case PortSpaceUDP:
		return "UDP"
	case PortSpaceIB:
		return "IB"
	}
	return fmt.Sprintf("PortSpace(%#04x)", uint16(s))
}

// Sentinels of the connection manager, for errors.Is.
var (
	// ErrAddrInUse: another ID has the port at this address (EADDRINUSE).
	ErrAddrInUse = fmt.Errorf("address %w", ErrBusy)
	// ErrNoPort: none of the ports from which one is chosen is free (EADDRNOTAVAIL).
	ErrNoPort = fmt.Errorf("no free port: %w", ErrLimit)
	// ErrNoAddr: the device does not have the address, or no address from which to reach the destination (ENODEV).
	ErrNoAddr = fmt.Errorf("no address of the device: %w", ErrInvalid)
	// ErrNoRoute: the destination is not one of the device's network (ENETUNREACH).
	ErrNoRoute = fmt.Errorf("no route: %w", ErrInvalid)
	// ErrPrivateData: the private data do not fit into the message (EINVAL).
	ErrPrivateData = fmt.Errorf("private data too long: %w", ErrInvalid)
	// ErrPermission: the owner is not allowed to do it (EACCES).
	ErrPermission = errors.New("permission denied")
)

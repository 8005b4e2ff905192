package ib

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"
)

// CMDevice is a Device with a connection manager (CapCM): it connects queue pairs by IP
// address and port, as librdmacm and the kernel's rdma_ucm do. Package rdmacm has Dial and
// Listen on top of it.
//
// A connection comes about like this; in the right column, the event that is waited for.
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
// InitQPAttr says what to Modify the QP with. The manager sends messages again that get no
// answer, answers those of peers and keeps timewait whatever the application does.
//
// A UD ID asks for the queue pair behind a port instead (SIDR, IBTA 12.11): Connect, and
// CMEstablished has the answer. Its passive side answers CMConnectRequest by Accept or Reject.
type CMDevice interface {
	Device
	// OpenCM opens an event channel (rdma_create_event_channel).
	OpenCM() (CM, error)
}

// CM is an event channel of a connection manager, and what is made on it. All methods of
// a CM and its IDs may be called from several goroutines at once; none but NextEvent waits.
type CM interface {
	// CreateID makes an ID (rdma_create_id), which is the caller's to close. More than
	// the owner may have is ErrLimit.
	CreateID(CMIDInit) (CMID, error)
	// NextEvent waits for the next event of the channel's IDs (rdma_get_cm_event). Its
	// slices are the caller's. An event that waits is returned even if ctx has ended.
	// ErrClosed says that the channel or the device is closed.
	NextEvent(ctx context.Context) (CMEvent, error)
	// Close closes the channel and all of its IDs, those in unread events too.
	Close() error
}

// CMIDInit says what an ID is for.
type CMIDInit struct {
	Space PortSpace // of its ports; 0 stands for PortSpaceTCP, with UD for PortSpaceUDP
	Type  QPType    // RC, which 0 stands for (UD in PortSpaceUDP and PortSpaceIPoIB), UC, UD

	// ServiceID, if not 0, is listened to, and asked for, in place of Space and the port.
	// One that is no port of a PortSpace has no rdma_cm header in its private data, of
	// which there may be 36 bytes more.
	ServiceID uint64
}

// CMID is an identifier of the connection manager (rdma_cm_id): a listener, or one end of
// a connection or of a datagram service.
//
// Where a method is called in the wrong state it fails with ErrState. Addresses are
// plain: an IPv4 address is not in its IPv6-mapped form, and has no zone.
type CMID interface {
	// Bind gives the ID a local address. Port 0 takes one that is free, from 49152 on. The
	// unspecified address of IPv4 stands for all of that family, that of IPv6 for all
	// addresses unless CMOptionAFOnly is set. A loopback address stands for the
	// device's first of the family, unless that is one itself.
	//
	// Another ID's port is ErrAddrInUse, unless both have CMOptionReuseAddr or different
	// addresses; an unspecified address is the same as any of its families. An address
	// that is not the device's is ErrNoAddr; a port that the owner may not have is
	// ErrPermission.
	Bind(local netip.AddrPort) error
	// Listen takes requests for the ID's port: each comes as CMConnectRequest, with an ID
	// of the type that the peer wants, RC or UC whichever the listener has (rdma_ucm
	// takes its own only). The ID is bound first if it is not. At most backlog requests wait in the channel to be
	// read, more are rejected; 0 stands for the most that the owner may have. Another
	// listener of the port is ErrAddrInUse, whatever CMOptionReuseAddr says.
	Listen(backlog int) error

	// ResolveAddr finds the local address to reach dst from, and takes a port for it, unless
	// the ID is bound. local may be zero, or have zero fields. CMAddrResolved or
	// CMAddrError comes of it, within timeout.
	ResolveAddr(local, dst netip.AddrPort, timeout time.Duration) error
	// ResolveRoute finds the way to that address: CMRouteResolved or CMRouteError.
	ResolveRoute(timeout time.Duration) error

	// Connect asks for a connection, or with UD for a datagram service: CMConnectResponse
	// (UD: CMEstablished), CMRejected or CMUnreachable comes of it.
	Connect(CMConnParam) error
	// Accept answers CMConnectRequest: CMEstablished, CMRejected or CMUnreachable comes of
	// it, with UD nothing. Take the QP to RTS before.
	Accept(CMConnParam) error
	// Establish answers CMConnectResponse; the peer gets CMEstablished. Take the QP to
	// RTS before.
	Establish() error
	// Reject answers CMConnectRequest or CMConnectResponse.
	Reject(CMReject) error
	// Delay tells the peer that the answer to CMConnectRequest will take up to d (a MRA).
	// Devices whose manager does so by itself refuse with ErrNotSupported.
	Delay(d time.Duration) error
	// Disconnect ends a connection: CMDisconnected, and later CMTimewaitExit, come of it.
	// It is no error if the connection has not come about, or has ended. The QP is left
	// as it is.
	Disconnect() error
	// Notify tells of an event of the QP (rdma_notify). EventCommEst says that data have
	// come, so that the peer is ready: CMEstablished comes if it has not. Other events
	// have no effect.
	Notify(EventType) error

	// JoinMulticast joins a group, on an ID of type UD that has a local address:
	// CMMulticastJoin or CMMulticastError comes of it. The QP has to be attached to the
	// group besides (QP.AttachMulticast).
	JoinMulticast(group netip.Addr) error
	// LeaveMulticast leaves it, and drops the group's unread events.
	LeaveMulticast(group netip.Addr) error

	// InitQPAttr says what to Modify the QP with to take it to a state (rdma_init_qp_attr):
	// Init from the beginning, RTR and RTS after CMConnectRequest or CMConnectResponse.
	// Fields that the QP's type does not have are filled in, and not in the mask.
	InitQPAttr(QPState) (QPAttr, QPAttrMask, error)
	// SetOption sets an option.
	SetOption(CMOption, int) error
	// Query describes the ID.
	Query() (CMIDAttr, error)
	// Migrate moves the ID, with its unread events, to another channel of the same owner
	// (rdma_migrate_id).
	Migrate(to CM) error
	// Close ends the ID: a connection is disconnected, a request rejected, a listener
	// ends and rejects the requests that nobody has read. Events of the ID that nobody has
	// read are dropped.
	Close() error
}

// CMConnParam is what an end brings to a connection (rdma_conn_param), or in an event what
// the peer has said.
type CMConnParam struct {
	QPN  QPN    // a QP of the owner's; of the peer, in events
	QKey uint32 // UD: of that QP; 0 stands for DefaultCMQKey
	SRQ  bool   // the QP takes its receives from an SRQ

	// How many READs and atomics this end takes, and wants to have under way, at a time.
	// The passive end gets no more than the active one has asked for. In CMConnectRequest
	// they are from the receiver's side: what the peer wants to have under way comes
	// first; in CMConnectResponse, what both have agreed on.
	ResponderResources, InitiatorDepth uint8
	RetryCount                         uint8 // of both ends' QPs, by the active end; more than 7 counts as 7
	RNRRetry                           uint8 // the same of RNR NAKs, by each end for the other; 7 is for ever

	// PrivateData goes along: at most 56 bytes with Connect (UD: 180), 196 with Accept
	// (UD: 136). In events it is the whole field, with zeros at the end.
	PrivateData []byte

	// Timeout bounds how long Connect goes on asking; 0 takes the manager's 15 tries, some
	// 22 seconds. A device that cannot (rdma_ucm has no such parameter) ignores it.
	Timeout time.Duration
}

// CMReject refuses.
type CMReject struct {
	// Reason is that of a REJ (IBTA 12.6.7.2); 0 stands for 28, the consumer's reject. rdma_ucm
	// knows 28 and 35 only. A datagram service says it with one of four statuses.
	Reason      uint16
	Info        []byte // additional reject information, at most 72 bytes
	PrivateData []byte // at most 148 bytes; UD: 136
}

// DefaultCMQKey is the Q_Key of datagram services and multicast groups (RDMA_UDP_QKEY).
const DefaultCMQKey = 0x01234567

// CMEvent is something that happened to an ID.
type CMEvent struct {
	Type     CMEventType
	ID       CMID
	Listener CMID // CMConnectRequest: who listens; ID is new, of the listener's channel, and the reader's to close

	// Status says why, as rdma_cm does. CMRejected: the reason of the peer's REJ (IBTA
	// 12.6.7.2). CMUnreachable: the status of the SIDR_REP that refuses, 1 to 5
	// (IBTA 12.11.2.2), or -110 (ETIMEDOUT). Other errors: -errno of Linux.
	Status int
	// Param is the peer's, in CMConnectRequest, CMConnectResponse and CMEstablished. PrivateData
	// is there in CMRejected, CMUnreachable and CMDisconnected, too.
	Param CMConnParam
	AH    AHAttr     // UD: where to send, in CMConnectRequest, CMEstablished and CMMulticastJoin
	Group netip.Addr // CMMulticastJoin, CMMulticastError
	Info  []byte     // CMRejected: additional reject information
	Tries int        // CMUnreachable: how often was asked, if known
}

// CMEventType says what happened. Values are those of rdma_cm_event_type.
type CMEventType uint8

// Events of the connection manager.
const (
	CMAddrResolved    CMEventType = 0
	CMAddrError       CMEventType = 1
	CMRouteResolved   CMEventType = 2
	CMRouteError      CMEventType = 3
	CMConnectRequest  CMEventType = 4 // a peer asks: Accept or Reject
	CMConnectResponse CMEventType = 5 // the peer has accepted: Establish
	CMConnectError    CMEventType = 6
	CMUnreachable     CMEventType = 7 // no answer
	CMRejected        CMEventType = 8
	CMEstablished     CMEventType = 9
	CMDisconnected    CMEventType = 10
	CMDeviceRemoval   CMEventType = 11 // the device is closed
	CMMulticastJoin   CMEventType = 12
	CMMulticastError  CMEventType = 13
	CMAddrChange      CMEventType = 14 // the port does not have the ID's address any more
	CMTimewaitExit    CMEventType = 15 // no packets of the connection are under way any more
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

// CMOption is an option of an ID. Values are those of RDMA_OPTION_ID_*, where it has them.
type CMOption int

// Options.
const (
	CMOptionTOS        CMOption = 0         // traffic class of the path, 0 to 255; before ResolveRoute
	CMOptionReuseAddr  CMOption = 1         // 1: Bind may share a port with others that have it; before Bind
	CMOptionAFOnly     CMOption = 2         // 1: the unspecified IPv6 address is for IPv6 only; before Bind
	CMOptionAckTimeout CMOption = 3         // 5-bit code of the local ACK timeout of both ends (default 16); before Connect
	CMOptionPathMTU    CMOption = 1<<16 | 1 // bytes (default: the port's active MTU; RDMA_OPTION_IB_PATH); before Connect
)

// CMIDAttr describes an ID.
type CMIDAttr struct {
	Space     PortSpace
	Type      QPType
	ServiceID uint64         // CMIDInit.ServiceID
	Local     netip.AddrPort // zero before the ID is bound
	Remote    netip.AddrPort // zero before ResolveAddr; port 0 for a peer that does not say it
	PathMTU   MTU            // of the route, like AH; of the request, on the passive side
	AH        AHAttr         // valid if the ID has both addresses
}

// PortSpace is the part of a service ID that says which ports are meant (Linux's
// enum rdma_ucm_port_space).
type PortSpace uint16

// Port spaces of rdma_cm.
const (
	PortSpaceIPoIB PortSpace = 0x0002
	PortSpaceTCP   PortSpace = 0x0106 // connections
	PortSpaceUDP   PortSpace = 0x0111 // datagrams
	PortSpaceIB    PortSpace = 0x013F
)

// ServiceID returns the service ID of a port (IBTA annex A11).
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

// Sentinels of the connection manager.
var (
	// ErrAddrInUse: another ID has the port at this address (EADDRINUSE).
	ErrAddrInUse = fmt.Errorf("address %w", ErrBusy)
	// ErrNoAddr: the device does not have the address, or none to reach the other from
	// (ENODEV).
	ErrNoAddr = fmt.Errorf("no address of the device: %w", ErrInvalid)
	// ErrPrivateData: more private data than the message has room for (EINVAL).
	ErrPrivateData = fmt.Errorf("private data too long: %w", ErrInvalid)
	// ErrPermission: the owner may not do it (EACCES).
	ErrPermission = errors.New("permission denied")
)

package cm

import (
	"errors"
	"fmt"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/wire"
)

// ID identifies a connection, a resolution or a request of this port. It is the local communication ID in its messages:
// random, never 0.
type ID uint32

// ListenID identifies a listener.
type ListenID uint32

// Path says where messages go, and later the data of the connection.
type Path struct {
	Local, Remote ib.GID
	FlowLabel     uint32
	TrafficClass  uint8
	HopLimit      uint8 // 0 stands for 64
}

// Message is a MAD to send to QP 1 of Path.Remote.
type Message struct {
	Path Path
	MAD  [wire.MADLen]byte
}

// Params are what one end contributes to a connection. All values are used as they are; defaults are up to the caller.
type Params struct {
	QPN                ib.QPN
	Service            ib.QPType // RC or UC
	SRQ                bool
	ResponderResources uint8 // READs and atomics that this end accepts at a time
	InitiatorDepth     uint8 // READs and atomics that this end wants to have outstanding
	RetryCount         uint8 // of both ends' QPs; the active end chooses it
	RNRRetry           uint8 // RNR NAKs after which the peer's QP retransmits; 7: any number
	PrivateData        []byte
}

// Connect has the arguments of Manager.Connect.
type Connect struct {
	Params
	Path       Path
	ServiceID  uint64
	SrcPort    uint16 // goes into the rdma_cm header of the private data
	PathMTU    ib.MTU
	FixedMTU   bool       // a peer that takes only a smaller path MTU is not asked again, for that one
	AckTimeout uint8      // 5-bit code of the local ACK timeout of both ends
	GiveUp     ib.Instant // when to stop waiting for an answer; driver.Never leaves it to Options.Retries
}

// Resolve has the arguments of Manager.Resolve, which asks for the QP of a datagram service.
type Resolve struct {
	Path        Path
	ServiceID   uint64
	SrcPort     uint16
	PrivateData []byte
	GiveUp      ib.Instant
}

// Answer has the arguments of Manager.Answer, which answers a request of a datagram service.
type Answer struct {
	Status      ib.SIDRStatus
	QPN         ib.QPN
	QKey        uint32
	Info        []byte
	PrivateData []byte
}

// EventKind says what happened. The names are those of rdma_cm_event_type, except Request (CONNECT_REQUEST), Replied
// (CONNECT_RESPONSE), Resolved (ESTABLISHED), and Dropped, which has no counterpart.
type EventKind uint8

// Events.
const (
	// Request: a REQ, or with Datagram a SIDR_REQ, arrived at a listener. Accept,
	// Answer or Reject it.
	Request EventKind = iota
	// Replied: the peer accepted. Take the QP to RTS, then Confirm.
	Replied
	// Established: the peer is ready (its RTU came).
	Established
	// Rejected: the peer sent a REJ, or a SIDR_REP with a status other than valid; or the peer's QP began a new
	// connection before the handshake was over (reason stale). The ID is released.
	Rejected
	// Unreachable: the peer did not answer. The ID is released.
	Unreachable
	// Disconnected: one end has disconnected, or the peer is gone. The ID exists until TimewaitExit.
	Disconnected
	// TimewaitExit: no packet of the connection can be in the network any more; its QP number may be used again. The ID
	// is released.
	TimewaitExit
	// Resolved: the datagram service answered. The ID is released.
	Resolved
	// Dropped: a request has ended before it was answered: the peer gave up (Reason, if the peer sent one), a limit
	// of Options was reached, or the listener was closed. The ID is released.
	Dropped
	// Forgotten: nothing is left of a connection that lingered after Release.
	Forgotten
)

// String returns the name.
func (k EventKind) String() string {
	if int(k) < len(eventText) {
		return eventText[k]
	}
	return fmt.Sprintf("EventKind(%d)", uint8(k))
}

var eventText = [...]string{
	"Request", "Replied", "Established", "Rejected", "Unreachable", "Disconnected", "TimewaitExit", "Resolved",
	"Dropped", "Forgotten",
}

// Event is something that happened to a connection.
type Event struct {
	Kind      EventKind
	ID        ID
	Listener  ListenID      // Request
	Datagram  bool          // Request, Rejected, Unreachable: it is about SIDR
	Path      Path          // Request: the path back to the peer
	Header    wire.CMHeader // Request: addresses and ports from the rdma_cm header
	HasHeader bool          // Request: the service ID belongs to rdma_cm, so Header is valid

	Conn   ConnParams      // Request, Replied, Established: as agreed so far; the first PSNs are always set
	SRQ    bool            // Request, Replied: the peer's QP has an SRQ
	QKey   uint32          // Resolved, with Conn.RemoteQPN
	Reason ib.RejectReason // Rejected, Dropped
	Status ib.SIDRStatus   // Rejected, with Datagram
	Waited string          // Unreachable: the message that was not answered: "REQ", "REP", "SIDR_REQ"
	Sent   int             // Unreachable: how often it was sent

	Info        []byte // Rejected: additional reject information
	PrivateData []byte // the whole field of the peer's message, without the rdma_cm header
}

// ConnParams are the attributes that the QP of a connection must have.
type ConnParams struct {
	RemoteQPN ib.QPN
	RQPSN     ib.PSN // QPAttr.RQPSN
	SQPSN     ib.PSN
	Service   ib.QPType
	PathMTU   ib.MTU
	// In a Request, ResponderResources is how many READs and atomics the peer wants to have outstanding, and
	// InitiatorDepth how many it accepts; afterwards they are QPAttr.MaxDestRdAtomic and QPAttr.MaxRdAtomic, as the
	// passive end has chosen them.
	ResponderResources uint8
	InitiatorDepth     uint8
	AckTimeout         uint8
	RetryCount         uint8
	RNRRetry           uint8
}

// Errors of a Manager's methods.
var (
	ErrUnknownID = errors.New("no such connection") // it may have ended a moment ago
	ErrState     = ib.ErrState                      // the connection's state does not allow it
	ErrPrivate   = ib.ErrPrivateData
	ErrInUse     = ib.ErrAddrInUse // the service ID has a listener already
	ErrLimit     = ib.ErrLimit     // too many IDs
)

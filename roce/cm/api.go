package cm

import (
	"errors"
	"fmt"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/wire"
)

// ID names a connection, a resolution or a request of this port: the local
// communication ID of its messages, a random number that is never 0.
type ID uint32

// ListenID names a listener.
type ListenID uint32

// Path is where messages go, and data afterwards.
type Path struct {
	Local, Remote ib.GID
	FlowLabel     uint32
	TrafficClass  uint8
	HopLimit      uint8 // 0 stands for 64
}

// Message is a management datagram to send to QP 1 of Path.Remote.
type Message struct {
	Path Path
	MAD  [wire.MADLen]byte
}

// Params are what an end brings to a connection. Their defaults are the caller's
// business: all values are taken as they are.
type Params struct {
	QPN                ib.QPN
	Service            ib.QPType // RC or UC
	SRQ                bool
	ResponderResources uint8 // READs and atomics that we take at a time
	InitiatorDepth     uint8 // that we want to have under way
	RetryCount         uint8 // of both ends' QPs; the active end says it
	RNRRetry           uint8 // how often the peer's QP repeats what found no receive
	PrivateData        []byte
}

// Connect asks for a connection.
type Connect struct {
	Params
	Path       Path
	ServiceID  uint64
	SrcPort    uint16 // goes into the rdma_cm header of the private data
	PathMTU    ib.MTU
	AckTimeout uint8      // 5-bit code: local ACK timeout of both ends
	GiveUp     ib.Instant // when an answer is no longer waited for; ib.Never leaves it to Options.Retries
}

// Resolve asks for a datagram service's QP.
type Resolve struct {
	Path        Path
	ServiceID   uint64
	SrcPort     uint16
	PrivateData []byte
	GiveUp      ib.Instant
}

// Answer replies to a request of a datagram service.
type Answer struct {
	Status      wire.SIDRStatus
	QPN         ib.QPN
	QKey        uint32
	Info        []byte
	PrivateData []byte
}

// EventKind says what happened. Names are those of rdma_cm_event_type.
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
	// Rejected: a REJ came, or a SIDR_REP with a status other than valid; or, with
	// reason stale, the peer began anew before the handshake was over. The ID is gone.
	Rejected
	// Unreachable: nobody answered. The ID is gone.
	Unreachable
	// Disconnected: either end wanted it so, or the peer is gone. The ID goes
	// with TimewaitExit.
	Disconnected
	// TimewaitExit: no packets of the connection are under way any more; its QP
	// number may be used again. The ID is gone.
	TimewaitExit
	// Resolved: the datagram service answered. The ID is gone.
	Resolved
	// Dropped: a request that nobody had answered yet is gone: the peer gave up,
	// for Reason if it said so, or there were too many.
	Dropped
)

// String returns the name.
func (k EventKind) String() string {
	if int(k) < len(eventText) {
		return eventText[k]
	}
	return fmt.Sprintf("EventKind(%d)", uint8(k))
}

var eventText = [...]string{
	"Request", "Replied", "Established", "Rejected", "Unreachable", "Disconnected", "TimewaitExit", "Resolved", "Dropped",
}

// Event is something that happened to a connection.
type Event struct {
	Kind      EventKind
	ID        ID
	Listener  ListenID      // Request
	Datagram  bool          // Request, Rejected, Unreachable: it is about SIDR
	Path      Path          // Request: the way back
	Header    wire.CMHeader // Request: the two ends by address
	HasHeader bool          // Request: the service ID is one of rdma_cm

	Conn   ConnParams        // Request, Replied, Established: as agreed so far; the first PSNs are there from the start
	SRQ    bool              // Request, Replied: the peer's QP has an SRQ
	QKey   uint32            // Resolved, with Conn.RemoteQPN
	Reason wire.RejectReason // Rejected, Dropped
	Status wire.SIDRStatus   // Rejected, with Datagram
	Waited string            // Unreachable: the message that got no answer: "REQ", "REP", "SIDR_REQ"
	Sent   int               // Unreachable: how often it was sent

	Info        []byte // Rejected: additional information
	PrivateData []byte // the peer's, without the rdma_cm header: all bytes of the field
}

// ConnParams are what the QP of a connection has to be set to.
type ConnParams struct {
	RemoteQPN ib.QPN
	RQPSN     ib.PSN // QPAttr.RQPSN
	SQPSN     ib.PSN
	Service   ib.QPType
	PathMTU   ib.MTU
	// ResponderResources is what the peer wants to have under way, in a Request;
	// afterwards QPAttr.MaxDestRdAtomic. InitiatorDepth is what the peer takes,
	// afterwards QPAttr.MaxRdAtomic.
	ResponderResources uint8
	InitiatorDepth     uint8
	AckTimeout         uint8
	RetryCount         uint8
	RNRRetry           uint8
}

// Errors of the inputs.
var (
	ErrUnknownID = errors.New("no such connection") // it may just have gone
	ErrState     = ib.ErrState                      // the connection's state does not allow it
	ErrPrivate   = ib.ErrPrivateData
	ErrInUse     = ib.ErrAddrInUse // the service ID has a listener
	ErrLimit     = ib.ErrLimit     // too many connections
)

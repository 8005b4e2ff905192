package cm

import (
	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/wire"
)

// Manager is the communication manager of a port. It is not safe for concurrent
// use.
type Manager struct{}

// New returns a manager without connections.
func New(o Options) *Manager { panic("todo") }

// Listen takes requests for a service ID, sent to one local GID, or to any if
// local is zero. A listener for one GID goes before one for all.
func (m *Manager) Listen(service uint64, local ib.GID, datagram bool) (ListenID, error) {
	panic("todo")
}

// Unlisten ends a listener and rejects what is waiting for an answer.
func (m *Manager) Unlisten(now ib.Instant, l ListenID) { panic("todo") }

// Connect sends a REQ.
func (m *Manager) Connect(now ib.Instant, c Connect) (ID, error) { panic("todo") }

// Resolve sends a SIDR_REQ.
func (m *Manager) Resolve(now ib.Instant, r Resolve) (ID, error) { panic("todo") }

// Accept answers a Request with a REP. It returns what to set the QP to, before
// the peer can know: take the messages out only afterwards.
func (m *Manager) Accept(now ib.Instant, id ID, p Params) (ConnParams, error) { panic("todo") }

// Answer answers a Request of a datagram service with a SIDR_REP.
func (m *Manager) Answer(now ib.Instant, id ID, a Answer) error { panic("todo") }

// Reject answers a Request, or Replied, with a REJ.
func (m *Manager) Reject(now ib.Instant, id ID, reason wire.RejectReason, info, private []byte) error {
	panic("todo")
}

// Delay answers a Request, or Replied, with a MRA: the real answer will come
// within d.
func (m *Manager) Delay(now ib.Instant, id ID, d ib.Instant) error { panic("todo") }

// Confirm sends the RTU after Replied.
func (m *Manager) Confirm(now ib.Instant, id ID, private []byte) error { panic("todo") }

// DataArrived says that the first packet came over the accepted connection: the
// RTU must have been lost (IBTA 12.9.6). It raises Established.
func (m *Manager) DataArrived(now ib.Instant, id ID) { panic("todo") }

// Disconnect sends a DREQ.
func (m *Manager) Disconnect(now ib.Instant, id ID, private []byte) error { panic("todo") }

// Release ends whatever is under way with this ID, with the message that tells
// the peer. No event will come of it any more.
func (m *Manager) Release(now ib.Instant, id ID) { panic("todo") }

// Handle takes a datagram that arrived over path (Local is our GID).
func (m *Manager) Handle(now ib.Instant, path Path, mad []byte) { panic("todo") }

// Timeout does what is due.
func (m *Manager) Timeout(now ib.Instant) { panic("todo") }

// Deadline is when Timeout wants to be called.
func (m *Manager) Deadline() ib.Instant { panic("todo") }

// NextMessage takes out the oldest message to send; false if there is none.
func (m *Manager) NextMessage(out *Message) bool { panic("todo") }

// NextEvent takes out the oldest event; false if there is none.
func (m *Manager) NextEvent(out *Event) bool { panic("todo") }

// Stats returns the counters.
func (m *Manager) Stats() Stats { panic("todo") }

// Options adjust a Manager. Zero fields take the defaults.
type Options struct {
	GUID uint64 // of the device: peers take GUID and QP number for a connection
	Seed uint64 // of communication IDs, transaction IDs and starting PSNs
}

// Stats counts.
type Stats struct{}

package cm

import "github.com/goroce/goroce/wire"

// Counts has one counter for each type of message.
type Counts [wire.AttrAPR - wire.AttrREQ + 1]uint64

// Of returns the count of one type of message, AttrREQ to AttrAPR.
func (c *Counts) Of(a wire.CMAttr) uint64 { return c[a-wire.AttrREQ] }

// Stats are the counters of a Manager.
type Stats struct {
	Received Counts // well-formed messages
	Sent     Counts // messages, retransmissions included
	Resent   uint64 // retransmissions, because no answer came in time

	// Received messages that had no effect:
	Duplicates  uint64 // copies of messages that were handled before
	Ignored     uint64 // messages that are not expected in the connection's state
	UnknownID   uint64 // messages for connections that do not exist
	NoListener  uint64 // requests for a service ID without a listener
	Refused     uint64 // requests with invalid contents
	Stale       uint64 // REQs and REPs that name a peer's QP which has another connection here
	WrongQPN    uint64 // DREQs that name another QP than the connection's
	BadLength   uint64 // datagrams that are not 256 bytes long
	BadHeader   uint64 // wrong base version, class, class version or method
	BadSource   uint64 // source is a multicast or the unspecified address
	Unsupported uint64 // LAP, APR and unknown attributes
	Overrun     uint64 // dropped because the queue of messages or of events was full

	// What the limits of Options cost:
	HalfOpenDropped uint64 // half-open requests evicted by newer ones
	TimewaitDropped uint64 // connections that left timewait early
	NoResources     uint64 // requests rejected because no ID was free
	BacklogFull     uint64 // requests that the consumer has ignored, because its listener's backlog was full

	Lapsed uint64 // requests that the consumer did not answer before the peer gave up

	// Open is the number of connections, resolutions and requests that exist now, those in timewait included.
	Open uint64
}

// Stats returns the counters.
func (m *Manager) Stats() Stats {
	st := m.stats
	st.Open = uint64(len(m.conns))
	return st
}

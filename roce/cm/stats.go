package cm

import "github.com/goroce/goroce/wire"

// Counts is a number for each message of the communication manager.
type Counts [wire.AttrAPR - wire.AttrREQ + 1]uint64

// Of returns the count of a message: AttrREQ to AttrAPR.
func (c *Counts) Of(a wire.CMAttr) uint64 { return c[a-wire.AttrREQ] }

// Stats counts.
type Stats struct {
	Received Counts // well-formed messages
	Sent     Counts // messages, those that were sent again included
	Resent   uint64 // messages sent again because no answer came in time

	// Of what was received:
	Duplicates  uint64 // messages whose first copy did its work
	Ignored     uint64 // messages that the connection's state does not take
	UnknownID   uint64 // messages for connections that are not there
	NoListener  uint64 // requests for a service ID that nobody listens to
	Refused     uint64 // requests whose contents are wrong
	Stale       uint64 // REQs and REPs that name the peer's QP of another connection
	WrongQPN    uint64 // DREQs that name another QP than the connection's
	BadLength   uint64 // datagrams that are not 256 bytes long
	BadHeader   uint64 // of another base version, class, class version or method
	BadSource   uint64 // from a multicast or unspecified address
	Unsupported uint64 // LAP, APR and attributes that are none
	Overrun     uint64 // dropped because too many messages or events wait to be taken out

	// What the bounds of Options cost:
	HalfOpenDropped uint64 // requests that made room for newer ones
	TimewaitDropped uint64 // connections that left timewait early
	NoResources     uint64 // requests refused for want of IDs

	Lapsed uint64 // requests that nobody answered while the peer waited

	// Open is how many connections, resolutions and requests there are now, those in
	// timewait included.
	Open uint64
}

// Stats returns the counters.
func (m *Manager) Stats() Stats {
	st := m.stats
	st.Open = uint64(len(m.conns))
	return st
}

// Package track follows RoCE connections from outside, by their packets: for each packet, in order, a [Tracker] says
// what it does to its connection. Which message it belongs to, what it acknowledges, whether it was sent before, and
// why it is sent again.
//
// The packets may come from a capture file, from a link, or from a simulation. The package is pure: no IO, no
// goroutines, no clock.
//
// A [Flow] is all packets from one address to one queue pair; packets do not have the number of the sender's QP. The
// responses to the requests of a flow are in another flow. Two flows are paired if one has a response with a PSN that
// the other awaits, by messages of the connection manager (cm.go), and by the source QP of datagrams. A pair of flows
// is a [Conn].
//
// Packets have the numbers that the caller gives them, and texts name packets by them: "acknowledges #3". A Tracker is
// for one goroutine at a time; what it returns belongs to it, may change with later packets, and must not be changed.
//
// A requests value follows the requests of a flow and their responses: PSNs of both (history.go), messages
// (message.go), and reasons of retransmissions (cause.go). request.go handles requests, response.go responses. Each
// returns an [Effect], which effect.go can format as a sentence.
//
// There are limits. A packet may be lost before or after the point of capture; the tracker infers the latter from
// retransmissions, the former from gaps in the PSNs. It keeps no payload, and a bounded history of each flow: at most
// the last 8,192 requests and responses, of at most 16,384 flows.
package track

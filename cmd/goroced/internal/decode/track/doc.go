// Package track follows the RoCE connections in a capture: for each packet, in order, it determines the effect on the
// connection.
//
// A [Flow] is all packets from one address to one queue pair; packets do not have the number of the sender's QP. The
// responses to the requests of a flow are in another flow. Two flows are paired if one has a response with a PSN that
// the other awaits, by messages of the connection manager (cm.go), and by the source QP of datagrams. A pair of flows
// is a [Conn].
//
// A requests value follows the requests of a flow and their responses: PSNs of both (history.go), messages
// (message.go), and reasons of retransmissions (cause.go). request.go handles requests, response.go responses. Each
// returns an [Effect], which effect.go can format as a sentence.
//
// There are limits. A packet may be lost before or after the point of capture; the tracker infers the latter from
// retransmissions, the former from gaps in the PSNs. It keeps no payload, and a bounded history of each flow: at most
// the last 8,192 requests and responses.
package track

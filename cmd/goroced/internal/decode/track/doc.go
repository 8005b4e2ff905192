// Package track follows RoCE connections by looking on: given packets in the
// order of a capture, it says of each what it does to its connection.
//
// A [Flow] is everything that one address sends to one queue pair; the packets do
// not name the sender's QP. Requests in a flow are answered in another: a
// response whose PSN is awaited there pairs the two, and so do the connection
// manager's messages (cm.go) and the source QP of datagrams. Two paired flows are
// a [Conn].
//
// Requests of a flow, and what answers them, are followed by a requests value:
// PSNs sent and answered (window.go), messages (message.go), and why something
// was sent again (cause.go). request.go handles what the requester sends,
// response.go what comes back. Each returns an [Effect]; effect.go turns it into
// a sentence.
//
// Looking on has limits. A packet may be lost after it was captured, or before;
// the tracker infers the one from what is asked for again, the other from a gap
// in the PSNs. It keeps no payload, and of each flow a bounded history: at most the
// 8,192 latest requests and responses.
package track

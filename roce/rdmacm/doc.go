// Package rdmacm connects queue pairs by IP address and port, as librdmacm does:
// Listen and Dial on a device, with Linux's rdma_cm, librdmacm programs or
// another goroce at the other end.
//
//	cm, err := rdmacm.Open(dev, rdmacm.Options{})
//	l, err := cm.Listen(ctx, "192.0.2.1:7471", rdmacm.ListenConfig{})
//	c, err := l.Accept(ctx)
//
//	cm, err := rdmacm.Open(dev, rdmacm.Options{})
//	c, err := cm.Dial(ctx, "192.0.2.1:7471", rdmacm.Config{})
//
// A [CM] owns a general services QP of the port, a goroutine that receives on it, and
// the state machine of package cm. A [Conn] is a connected QP; what is sent over it
// is the application's business. For datagrams, [CM.Resolve] and a listener with
// Config.Service ib.UD find the QP and Q_Key behind a port. [CM.Join] makes a UD QP
// a member of a multicast group.
//
// Peers may send as soon as the handshake is over. Config.Prepare is the place to
// post the first receives: the QP is in INIT then, and the peer does not know of it.
//
// One mutex, CM.mu, guards the state machine and all that hangs on it. An input
// (a datagram, a call, the timer) takes it, and before it lets go events have
// reached their connections and messages are posted: cm.go. Device verbs are called
// under it, and wait for nobody.
//
//	gsi.go                   the general services QP: datagrams in, messages out
//	route.go, ports.go       addresses: names, local GIDs, ports
//	config.go, endpoint.go   what a connection is made of
//	dial.go, listen.go, request.go, conn.go   connections
//	datagram.go, join.go     datagram services, multicast
package rdmacm

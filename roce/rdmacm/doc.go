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
// A [CM] is an event channel of the device's connection manager (ib.CM), and a goroutine that
// reads it. A [Conn] is a connected QP; what is sent over it is the application's
// business. For datagrams, [CM.Resolve] and a listener with Config.Service ib.UD find the QP
// and Q_Key behind a port. [CM.Join] makes a UD QP a member of a multicast group.
//
// Peers may send as soon as the handshake is over. Config.Prepare is the place to
// post the first receives: the QP is in INIT then, and the peer does not know of it.
//
// One mutex, CM.mu, guards all that hangs on a CM. Events and calls take it; device verbs and
// operations of the connection manager are called under it, and wait for nobody.
//
//	cm.go                    the channel: events to their owners
//	route.go                 addresses: names, and the ID that is taken to a peer's
//	config.go, endpoint.go   what a connection is made of
//	dial.go, listen.go, request.go, conn.go   connections
//	fair.go                  how hosts share a listener's room
//	datagram.go, join.go     datagram services, multicast
package rdmacm

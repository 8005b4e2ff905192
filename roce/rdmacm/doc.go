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
// Peers may send as soon as the handshake is over. Post the first receives in Config.Prepare: the QP is in INIT then,
// and the peer does not know it yet.
//
// One mutex, CM.mu, guards the state of a CM and of everything that was made with it. Events and calls take it. They
// call verbs and operations of the connection manager with the mutex held; none of those blocks.
//
//	cm.go                    the channel: events to their owners
//	route.go                 from a host name to an ID with a resolved route
//	config.go, endpoint.go   what a connection is made of
//	dial.go, listen.go, request.go, conn.go   connections
//	fair.go                  how hosts share a listener's room
//	datagram.go, join.go     datagram services, multicast
package rdmacm

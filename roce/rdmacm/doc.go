// Package rdmacm connects queue pairs by IP address and port, as librdmacm does:
// Listen and Dial on a device, with Linux's rdma_cm, librdmacm programs or
// another goroce at the other end.
//
//	cm, err := rdmacm.Open(dev)
//	l, err := cm.Listen(ctx, "192.0.2.1:7471", rdmacm.Config{})     c, err := cm.Dial(ctx, "192.0.2.1:7471", rdmacm.Config{})
//	c, err := l.Accept(ctx)
//
// A [CM] owns the port's general services QP, a goroutine that receives on it, and
// the state machine of package cm. A [Conn] is a connected QP; what is sent over it
// is the application's business. For datagrams, [CM.Resolve] and a listener with
// Config.Service ib.UD find the QP and Q_Key behind a port. [CM.Join] makes a UD QP
// a member of a multicast group.
//
// Peers may send as soon as the handshake is over. Config.Prepare is the place to
// post the first receives: the QP is in INIT then, and the peer does not know of it.
package rdmacm

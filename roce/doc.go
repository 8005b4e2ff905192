// Package roce is the front door of the software RDMA device, an ib.Device on a link that carries UDP payloads.
//
//	l, err := udp.Open(addrs, udp.Options{})
//	dev, err := roce.Open(wrap.Seal(wrap.Loopback(l)), roce.Options{})
//
// Package host does this for a machine's network; packages under link carry the frames. With [Options].Manual no
// goroutine runs: the owner calls Step with a time of its own, so that simulations of whole networks run in virtual
// time and are repeatable.
//
// Package internal/device has the objects of the API, internal/engine the loops that carry packets between them, and
// internal/cma the connection manager.
package roce

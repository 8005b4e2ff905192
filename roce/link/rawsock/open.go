package rawsock

import (
	"net/netip"

	"github.com/goroce/goroce/roce/link"
	"github.com/goroce/goroce/roce/link/internal/packet"
)

// Offload says whether runs are passed to the kernel as a whole.
type Offload = packet.Offload

// Offload settings.
const (
	OffloadAuto = packet.OffloadAuto // if the kernel supports it
	OffloadOn   = packet.OffloadOn   // opening fails if it does not
	OffloadOff  = packet.OffloadOff  // never
)

// DefaultRecvBuffer is Options.RecvBuffer if that is 0.
const DefaultRecvBuffer = packet.DefaultRecvBuffer

// Options for Open. The zero value is ready.
type Options struct {
	Offload Offload
	// RecvBuffer is the size of the receive buffer in bytes. Without CAP_NET_ADMIN it is limited to net.core.rmem_max;
	// Caps.Note tells the actual size.
	RecvBuffer int
}

// Open opens a link on the addresses, which one Ethernet interface must have. An IPv6 link-local address needs its
// zone, unless only one interface has it. If another program has the port, the error is a *port.Error; without
// CAP_NET_RAW it matches fs.ErrPermission.
func Open(addrs []netip.Addr, o Options) (link.Link, error) {
	c, err := packet.Open(addrs, packet.Options{Name: "rawsock", Offload: o.Offload, RecvBuffer: o.RecvBuffer})
	if err != nil {
		return nil, err
	}
	return c, nil
}

package rawsock

import (
	"net/netip"

	"github.com/goroce/goroce/roce/link"
	"github.com/goroce/goroce/roce/link/internal/packet"
)

// Offload says whether runs are given to the kernel whole.
type Offload = packet.Offload

// Offload settings.
const (
	OffloadAuto = packet.OffloadAuto // if the kernel can
	OffloadOn   = packet.OffloadOn   // fail to open if it cannot
	OffloadOff  = packet.OffloadOff  // send frame by frame
)

// DefaultRecvBuffer is Options.RecvBuffer if that is 0.
const DefaultRecvBuffer = packet.DefaultRecvBuffer

// Options for Open. The zero value is fine.
type Options struct {
	Offload Offload
	// RecvBuffer is the receive buffer to ask for, in bytes. Without CAP_NET_ADMIN
	// there is at most net.core.rmem_max; Caps.Note says how much it is.
	RecvBuffer int
}

// Open opens a link on the addresses, which one Ethernet interface must hold; an
// IPv6 link-local address carries its zone unless only one interface has it. If
// another program has the port, the error is a *port.Error; without CAP_NET_RAW it
// matches fs.ErrPermission.
func Open(addrs []netip.Addr, o Options) (link.Link, error) {
	c, err := packet.Open(addrs, packet.Options{Name: "rawsock", Offload: o.Offload, RecvBuffer: o.RecvBuffer})
	if err != nil {
		return nil, err
	}
	return c, nil
}

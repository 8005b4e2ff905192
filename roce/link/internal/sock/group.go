package sock

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/goroce/goroce/ib"
)

// Join makes a socket a member of a multicast group on the interface with that
// index, until the socket is closed. Linux tells the network (IGMP, MLD), so that
// switches forward the group, and the NIC, so that it lets the group in.
func Join(fd, index int, g *ib.GID) error {
	var err error
	if g.Is4() {
		err = unix.SetsockoptIPMreqn(fd, unix.IPPROTO_IP, unix.IP_ADD_MEMBERSHIP,
			&unix.IPMreqn{Multiaddr: [4]byte(g[12:]), Ifindex: int32(index)})
	} else {
		err = unix.SetsockoptIPv6Mreq(fd, unix.IPPROTO_IPV6, unix.IPV6_JOIN_GROUP,
			&unix.IPv6Mreq{Multiaddr: *g, Interface: uint32(index)})
	}
	if err != nil {
		return fmt.Errorf("become a member on interface %d: %w", index, err)
	}
	return nil
}

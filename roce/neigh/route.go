package neigh

import (
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
)

// Route is the route of packets to an address.
type Route struct {
	Src     netip.Addr // the source address of the packets
	NetIf   string     // the interface that they are sent by
	Index   int        // its index
	Gateway netip.Addr // the next router; invalid if the destination is on the link
	MTU     int        // of the route, or else of the interface
}

// RouteTo asks the kernel for the route to dst.
func RouteTo(dst netip.Addr) (Route, error) {
	found, err := netlink.RouteGetWithOptions(dst.AsSlice(), nil)
	if err != nil {
		return Route{}, fmt.Errorf("route to %v: %w", dst, err)
	}
	if len(found) == 0 {
		return Route{}, fmt.Errorf("route to %v: there is none", dst)
	}
	l, err := netlink.LinkByIndex(found[0].LinkIndex)
	if err != nil {
		return Route{}, fmt.Errorf("route to %v: interface %d: %w", dst, found[0].LinkIndex, err)
	}
	r := Route{NetIf: l.Attrs().Name, Index: found[0].LinkIndex, MTU: l.Attrs().MTU, Gateway: gateway(&found[0])}
	if found[0].MTU != 0 {
		r.MTU = found[0].MTU
	}
	r.Src, _ = addrOf(found[0].Src)
	return r, nil
}

// gateway returns the router of a route, which may be of the other IP version
// (RFC 5549).
func gateway(r *netlink.Route) netip.Addr {
	if a, ok := addrOf(r.Gw); ok {
		return a
	}
	if via, ok := r.Via.(*netlink.Via); ok {
		a, _ := addrOf(via.Addr)
		return a
	}
	return netip.Addr{}
}

func addrOf(ip net.IP) (netip.Addr, bool) {
	a, ok := netip.AddrFromSlice(ip)
	return a.Unmap(), ok
}

// Silent reports whether the kernel has asked the next hop to dst for its MAC address and has had no answer, so far or
// for good. It returns the hop, and the interface.
func Silent(dst netip.Addr) (hop netip.Addr, netif string, silent bool) {
	r, err := RouteTo(dst)
	if err != nil {
		return hop, "", false
	}
	if hop = dst; r.Gateway.IsValid() {
		hop = r.Gateway
	}
	family := netlink.FAMILY_V6
	if hop.Is4() {
		family = netlink.FAMILY_V4
	}
	list, err := netlink.NeighList(r.Index, family)
	if err != nil {
		return hop, r.NetIf, false
	}
	for i := range list {
		if a, ok := addrOf(list[i].IP); ok && a == hop {
			return hop, r.NetIf, list[i].State&(netlink.NUD_INCOMPLETE|netlink.NUD_FAILED) != 0
		}
	}
	return hop, r.NetIf, false
}

package neigh

import (
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Route is the route of packets to an address.
type Route struct {
	Src     netip.Addr // the source address of the packets
	NetIf   string     // the interface that they are sent by
	Index   int        // its index
	Gateway netip.Addr // the next router; invalid if the destination is on the link
	MTU     int        // of the route, or else of the interface
}

// Routes asks the kernel for routes, in the network namespace in which it was made. Several goroutines may call To at
// once; Close comes last.
type Routes struct {
	netlink *netlink.Handle
	ioctl   netdevice
}

// NewRoutes opens the two sockets of a Routes.
func NewRoutes() (*Routes, error) {
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("ask for routes: %w", err)
	}
	n, err := newNetdevice()
	if err != nil {
		h.Close()
		return nil, fmt.Errorf("ask for routes: %w", err)
	}
	return &Routes{h, n}, nil
}

// Close closes the sockets.
func (r *Routes) Close() {
	r.netlink.Close()
	r.ioctl.close()
}

// To returns the route to dst.
func (r *Routes) To(dst netip.Addr) (Route, error) {
	found, err := r.netlink.RouteGetWithOptions(dst.AsSlice(), nil)
	if err != nil {
		return Route{}, fmt.Errorf("route to %v: %w", dst, err)
	}
	if len(found) == 0 {
		return Route{}, fmt.Errorf("route to %v: there is none", dst)
	}
	to := Route{Index: found[0].LinkIndex, MTU: found[0].MTU, Gateway: gateway(&found[0])}
	to.Src, _ = addrOf(found[0].Src)
	if to.NetIf, err = r.ioctl.name(to.Index); err == nil && to.MTU == 0 {
		to.MTU, err = r.ioctl.mtu(to.NetIf)
	}
	if err != nil {
		return Route{}, fmt.Errorf("route to %v: interface %d: %w", dst, to.Index, err)
	}
	return to, nil
}

// RouteTo asks the kernel once for the route to dst.
func RouteTo(dst netip.Addr) (Route, error) {
	r, err := NewRoutes()
	if err != nil {
		return Route{}, err
	}
	defer r.Close()
	return r.To(dst)
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

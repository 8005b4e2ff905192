package host

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/goroce/goroce/roce/neigh"
)

// ErrNoInterface: there is no network interface to open, or the requested one does not exist.
var ErrNoInterface = errors.New("no such network interface")

// Interface is a network interface that a device can be opened on.
type Interface struct {
	Name     string
	MTU      int // IP MTU in bytes
	Up       bool
	Loopback bool
	Default  bool         // Open uses it by default
	Addrs    []netip.Addr // in GID order; link-local addresses have a zone
}

// Device returns the name of the device that Open would open on the interface.
func (i *Interface) Device() string { return DevicePrefix + i.Name }

// Interfaces returns the network interfaces that have addresses, in the kernel's order.
func Interfaces() ([]Interface, error) {
	links, err := netlink.LinkList()
	if err != nil {
		return nil, fmt.Errorf("list network interfaces: %w", err)
	}
	var list []Interface
	for _, l := range links {
		a := l.Attrs()
		have, err := netlink.AddrList(l, netlink.FAMILY_ALL)
		if err != nil {
			return nil, fmt.Errorf("list addresses of %s: %w", a.Name, err)
		}
		addrs := gidOrder(neigh.Usable(have), a.Name)
		if len(addrs) == 0 {
			continue
		}
		list = append(list, Interface{Name: a.Name, MTU: a.MTU, Up: a.Flags&net.FlagUp != 0,
			Loopback: a.Flags&net.FlagLoopback != 0, Addrs: addrs})
	}
	route, err := defaultRoute(links)
	if err != nil {
		return nil, err
	}
	if i := pick(list, route); i >= 0 {
		list[i].Default = true
	}
	return list, nil
}

// gidOrder sorts addresses as in Linux's GID tables: first the IPv6 link-local address, which is the default GID, then
// the others in the order in which they were configured (ib_core, roce_gid_mgmt.c).
func gidOrder(addrs []netip.Addr, zone string) []netip.Addr {
	var first, rest []netip.Addr
	for _, a := range addrs {
		if a.Is6() && a.IsLinkLocalUnicast() {
			first = append(first, a.WithZone(zone))
		} else {
			rest = append(rest, a)
		}
	}
	return append(first, rest...)
}

// defaultRoute returns the interface of the default route with the lowest metric, IPv4 before IPv6; "" if there is
// none.
func defaultRoute(links []netlink.Link) (string, error) {
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		routes, err := netlink.RouteList(nil, family)
		if errors.Is(err, unix.EAFNOSUPPORT) {
			continue
		}
		if err != nil {
			return "", fmt.Errorf("list routes: %w", err)
		}
		best := -1
		for i, r := range routes {
			everywhere := r.Dst == nil || r.Dst.IP.IsUnspecified() && isZeroMask(r.Dst.Mask)
			if everywhere && r.LinkIndex > 0 && (best < 0 || r.Priority < routes[best].Priority) {
				best = i
			}
		}
		if best < 0 {
			continue
		}
		for _, l := range links {
			if l.Attrs().Index == routes[best].LinkIndex {
				return l.Attrs().Name, nil
			}
		}
	}
	return "", nil
}

func isZeroMask(m net.IPMask) bool {
	ones, _ := m.Size()
	return ones == 0
}

// pick returns the index of the interface to open by default, -1 if that is not clear.
func pick(list []Interface, route string) int {
	found := -1
	for i := range list {
		if !list[i].Up {
			continue
		}
		if list[i].Name == route {
			return i
		}
		if list[i].Loopback {
			continue
		}
		if found >= 0 {
			found = len(list) // more than one
			continue
		}
		found = i
	}
	if found == len(list) {
		return -1
	}
	return found
}

// addresses returns the addresses that o selects.
func addresses(o *Options) ([]netip.Addr, error) {
	if len(o.Addrs) > 0 {
		if o.NetIf != "" {
			return nil, fmt.Errorf("both an interface (%s) and addresses (%v) are given; one of them is enough",
				o.NetIf, o.Addrs)
		}
		return o.Addrs, nil
	}
	list, err := Interfaces()
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(list, func(f Interface) bool {
		return f.Name == o.NetIf || o.NetIf == "" && f.Default
	})
	switch {
	case i >= 0 && list[i].Up:
		return list[i].Addrs, nil
	case i >= 0:
		return nil, fmt.Errorf("interface %s is down; `ip link set %s up` brings it up", o.NetIf, o.NetIf)
	case o.NetIf == "":
		return nil,
			fmt.Errorf("%w: no default route, and none or several interfaces besides loopback; name an interface "+
				"(NetIf, --netif) or an address (Addrs, --addr) of %s", ErrNoInterface, names(list))
	}
	return nil, fmt.Errorf("%w: %s has no address, or is not there; there are %s", ErrNoInterface, o.NetIf, names(list))
}

// names returns the names of interfaces, for an error.
func names(list []Interface) string {
	if len(list) == 0 {
		return "none with an address"
	}
	var s []string
	for _, i := range list {
		state := ""
		if !i.Up {
			state = ", down"
		}
		s = append(s, fmt.Sprintf("%s (%v%s)", i.Name, MainAddr(i.Addrs), state))
	}
	return strings.Join(s, ", ")
}

// MainAddr returns the address that people know an interface by: IPv4 before IPv6, link-local ones last. There must be
// one.
func MainAddr(addrs []netip.Addr) netip.Addr {
	rank := func(a netip.Addr) int {
		switch {
		case a.IsLinkLocalUnicast():
			return 2
		case a.Is4():
			return 0
		}
		return 1
	}
	return slices.MinFunc(addrs, func(a, b netip.Addr) int { return cmp.Compare(rank(a), rank(b)) })
}

package host

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

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

	guid    uint64 // EUI-64 of the MAC address, as rdma_rxe's node GUID is; 0 if there is none
	settles bool   // duplicate address detection of a link-local address is under way
}

// Device returns the name of the device that Open would open on the interface.
func (i *Interface) Device() string { return DevicePrefix + i.Name }

// Interfaces returns the network interfaces that have addresses, in the kernel's order.
func Interfaces() ([]Interface, error) {
	list, err := interfaces()
	return withAddress(list), err
}

// withAddress leaves out the interfaces that have no address yet.
func withAddress(list []Interface) []Interface {
	return slices.DeleteFunc(list, func(i Interface) bool { return len(i.Addrs) == 0 })
}

// interfaces is Interfaces with those that will have a link-local address soon.
func interfaces() ([]Interface, error) {
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
		i := Interface{Name: a.Name, MTU: a.MTU, Up: a.Flags&net.FlagUp != 0, Loopback: a.Flags&net.FlagLoopback != 0,
			Addrs: gidOrder(neigh.Usable(have), a.Name), guid: eui64(a.HardwareAddr),
			settles: slices.ContainsFunc(have, settles)}
		if len(i.Addrs) > 0 || i.settles {
			list = append(list, i)
		}
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

// settles reports whether duplicate address detection of a link-local address is under way.
func settles(a netlink.Addr) bool {
	return a.IP.To4() == nil && a.IP.IsLinkLocalUnicast() &&
		a.Flags&(unix.IFA_F_TENTATIVE|unix.IFA_F_DADFAILED) == unix.IFA_F_TENTATIVE
}

// eui64 makes an EUI-64 of a MAC address (RFC 4291, A; Linux's addrconf_addr_eui48), 0 if it is none.
func eui64(mac net.HardwareAddr) uint64 {
	if len(mac) != 6 || slices.Equal(mac, make(net.HardwareAddr, 6)) {
		return 0
	}
	return binary.BigEndian.Uint64([]byte{mac[0] ^ 2, mac[1], mac[2], 0xFF, 0xFE, mac[3], mac[4], mac[5]})
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

// A link-local address can be used a second or two after its interface came up (RFC 4862, 5.4). Its GID has index 0 if
// the device is opened after that, so Open waits for it: programs and scripts name GIDs by their index.
const (
	settleLimit = 3 * time.Second
	settleLook  = 50 * time.Millisecond
)

// settled returns the interfaces, and which of them is the one of that name, or the default one for "": -1 if there is
// none. It waits for the link-local address of that interface.
func settled(name string) (list []Interface, i int, err error) {
	for end := time.Now().Add(settleLimit); ; time.Sleep(settleLook) {
		if list, err = interfaces(); err != nil {
			return nil, -1, err
		}
		i = slices.IndexFunc(list, func(f Interface) bool { return f.Name == name || name == "" && f.Default })
		if i < 0 || !list[i].Up || !list[i].settles || time.Now().After(end) {
			return list, i, nil
		}
	}
}

// addresses returns the addresses that o selects, and gives the device the GUID of their interface.
func addresses(o *Options) ([]netip.Addr, error) {
	if len(o.Addrs) > 0 {
		if o.NetIf != "" {
			return nil, fmt.Errorf("both an interface (%s) and addresses (%v) are given; one of them is enough",
				o.NetIf, o.Addrs)
		}
		return o.Addrs, nil
	}
	list, i, err := settled(o.NetIf)
	if err != nil {
		return nil, err
	}
	switch {
	case i >= 0 && list[i].Up && len(list[i].Addrs) > 0:
		o.Device.GUID = cmp.Or(o.Device.GUID, list[i].guid)
		return list[i].Addrs, nil
	case i >= 0 && !list[i].Up:
		return nil, fmt.Errorf("interface %s is down; `ip link set %s up` brings it up", o.NetIf, o.NetIf)
	case o.NetIf == "":
		return nil,
			fmt.Errorf("%w: no default route, and none or several interfaces besides loopback; name an interface "+
				"(NetIf, --netif) or an address (Addrs, --addr) of %s", ErrNoInterface, names(withAddress(list)))
	}
	return nil, fmt.Errorf("%w: %s has no address, or is not there; there are %s", ErrNoInterface, o.NetIf,
		names(withAddress(list)))
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

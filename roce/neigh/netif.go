package neigh

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"

	"github.com/vishvananda/netlink"
)

// ErrNoInterface: no network interface has the address.
var ErrNoInterface = errors.New("no network interface holds the address")

// NetIf is a network interface.
type NetIf struct {
	Name     string
	Index    int
	MTU      int // of IP packets, in bytes
	MAC      [6]byte
	Up       bool
	Loopback bool
	Ethernet bool // frames have Ethernet headers; on loopback, too
	NoARP    bool // the interface does not use MAC addresses
}

// Holding returns the interface that has addr. A loopback interface has all addresses of its networks. The zone of an
// IPv6 link-local address is the name or index of the interface; without a zone, the first interface that has the
// address is returned.
func Holding(addr netip.Addr) (NetIf, error) {
	links, err := netlink.LinkList()
	if err != nil {
		return NetIf{}, fmt.Errorf("list network interfaces: %w", err)
	}
	zone, addr := addr.Zone(), addr.WithZone("").Unmap()
	for _, l := range links {
		a := l.Attrs()
		if zone != "" && zone != a.Name && zone != strconv.Itoa(a.Index) {
			continue
		}
		have, err := netlink.AddrList(l, netlink.FAMILY_ALL)
		if err != nil {
			return NetIf{}, fmt.Errorf("list addresses of %s: %w", a.Name, err)
		}
		for _, h := range have {
			if holds(h.IPNet, addr, a.Flags&net.FlagLoopback != 0) {
				return netIf(a), nil
			}
		}
	}
	return NetIf{}, fmt.Errorf("%w: %v; `ip address` lists what there is", ErrNoInterface, addr)
}

func holds(n *net.IPNet, addr netip.Addr, loopback bool) bool {
	if n == nil {
		return false
	}
	have, _ := netip.AddrFromSlice(n.IP)
	return have.Unmap() == addr || loopback && n.Contains(addr.AsSlice())
}

func netIf(a *netlink.LinkAttrs) NetIf {
	n := NetIf{
		Name: a.Name, Index: a.Index, MTU: a.MTU,
		Up:       a.Flags&net.FlagUp != 0,
		Loopback: a.Flags&net.FlagLoopback != 0,
		Ethernet: a.EncapType == "ether" || a.EncapType == "loopback",
		NoARP:    a.RawFlags&iffNoARP != 0 || a.Flags&net.FlagLoopback != 0,
	}
	copy(n.MAC[:], a.HardwareAddr)
	return n
}

// iffNoARP is IFF_NOARP of linux/if.h.
const iffNoARP = 0x80

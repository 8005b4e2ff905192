package doctor

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/goroce/goroce/roce/host"
	"github.com/goroce/goroce/roce/neigh"
)

// subject is the interface to examine.
type subject struct {
	netif   *netif           // nil if none was found
	missing Finding          // why there is none
	usable  []netip.Addr     // addresses that a device would have, in GID order
	all     []host.Interface // interfaces of the machine that have usable addresses
}

// netif is a network interface.
type netif struct {
	name     string
	mtu      int
	up       bool
	carrier  bool
	loopback bool
	addrs    []address
}

// address is an address of an interface.
type address struct {
	netip.Prefix
	tentative, failed bool // state of duplicate address detection
}

// findSubject finds the interface that o selects.
func findSubject(o *Options) (subject, error) {
	if o.NetIf != "" && len(o.Addrs) > 0 {
		return subject{}, fmt.Errorf("both an interface (%s) and addresses (%v) are given; one of them is enough",
			o.NetIf, o.Addrs)
	}
	s := subject{}
	var err error
	if s.all, err = host.Interfaces(); err != nil {
		return s, err
	}
	name, missing := s.choose(o)
	if name == "" {
		s.missing = missing
		return s, nil
	}
	if s.netif, err = readNetIf(name); err != nil {
		s.missing = Finding{Status: Fail, Text: err.Error(),
			Remedy: "name another one with --netif; there are " + s.names()}
		return s, nil
	}
	s.usable = o.Addrs
	if i := slices.IndexFunc(s.all, func(f host.Interface) bool { return f.Name == name }); i >= 0 &&
		len(o.Addrs) == 0 {
		s.usable = s.all[i].Addrs
	}
	return s, nil
}

// choose returns the name of the interface, or a finding if there is none.
func (s *subject) choose(o *Options) (string, Finding) {
	switch {
	case o.NetIf != "":
		return o.NetIf, Finding{}
	case len(o.Addrs) > 0:
		n, err := neigh.Holding(o.Addrs[0])
		if err != nil {
			return "", Finding{Status: Fail, Text: err.Error(), Remedy: "use one of " + s.names()}
		}
		return n.Name, Finding{}
	case o.Peer.IsValid():
		if r, err := neigh.RouteTo(o.Peer); err == nil {
			return r.NetIf, Finding{}
		}
	}
	for i := range s.all {
		if s.all[i].Default {
			return s.all[i].Name, Finding{}
		}
	}
	return "", Finding{Status: Fail, Text: "no default route, and none or several interfaces besides loopback are up",
		Remedy: "name one with --netif; there are " + s.names()}
}

// names returns the names of the interfaces.
func (s *subject) names() string {
	links, err := netlink.LinkList()
	if err != nil {
		return "none that can be listed"
	}
	var names []string
	for _, l := range links {
		state := ""
		if l.Attrs().Flags&net.FlagUp == 0 {
			state = " (down)"
		}
		names = append(names, l.Attrs().Name+state)
	}
	return strings.Join(names, ", ")
}

func readNetIf(name string) (*netif, error) {
	l, err := netlink.LinkByName(name)
	if err != nil {
		return nil, fmt.Errorf("interface %s: %w", name, err)
	}
	a := l.Attrs()
	n := &netif{name: a.Name, mtu: a.MTU, up: a.Flags&net.FlagUp != 0, carrier: a.RawFlags&unix.IFF_LOWER_UP != 0,
		loopback: a.Flags&net.FlagLoopback != 0}
	have, err := netlink.AddrList(l, netlink.FAMILY_ALL)
	if err != nil {
		return nil, fmt.Errorf("addresses of %s: %w", name, err)
	}
	for _, h := range have {
		addr, _ := netip.AddrFromSlice(h.IP)
		ones, _ := h.Mask.Size()
		n.addrs = append(n.addrs, address{netip.PrefixFrom(addr.Unmap(), ones),
			h.Flags&unix.IFA_F_TENTATIVE != 0, h.Flags&unix.IFA_F_DADFAILED != 0})
	}
	return n, nil
}

package neigh

import (
	"net/netip"

	"github.com/vishvananda/netlink"
)

// Shared is the subnets that an interface and others of the host are both in. The kernel has a route by each to the
// addresses there, and takes the same one for all senders.
type Shared struct {
	nets []netip.Prefix
	own  map[netip.Addr]bool // the host's addresses in nets
}

// SharedWith asks the kernel for the subnets that the interface with an index shares with others. Loopback shares none.
func SharedWith(index int) (Shared, error) {
	s := Shared{own: map[netip.Addr]bool{}}
	have, err := netlink.AddrList(nil, netlink.FAMILY_ALL)
	if err != nil {
		return s, err
	}
	nets := map[netip.Prefix]bool{}
	for i := range have {
		if have[i].LinkIndex == index {
			nets[subnet(&have[i])] = true
		}
	}
	for i := range have {
		if n := subnet(&have[i]); have[i].LinkIndex != index && nets[n] && !n.IsSingleIP() {
			s.nets = append(s.nets, n)
			delete(nets, n)
		}
	}
	for i := range have {
		if a, ok := addrOf(have[i].IP); ok && s.in(a) {
			s.own[a] = true
		}
	}
	return s, nil
}

// subnet returns the network of an address; the zero value for link-local ones, each of which is of its interface.
func subnet(a *netlink.Addr) netip.Prefix {
	ip, ok := addrOf(a.IP)
	if !ok || ip.IsLoopback() || ip.Is6() && ip.IsLinkLocalUnicast() {
		return netip.Prefix{}
	}
	ones, _ := a.Mask.Size()
	n, _ := ip.Prefix(ones)
	return n
}

// Any reports whether there is such a subnet.
func (s *Shared) Any() bool { return len(s.nets) > 0 }

// Has reports whether an address is another host's in one of the subnets.
func (s *Shared) Has(a netip.Addr) bool { return s.in(a) && !s.own[a] }

func (s *Shared) in(a netip.Addr) bool {
	for _, n := range s.nets {
		if n.Contains(a) {
			return true
		}
	}
	return false
}

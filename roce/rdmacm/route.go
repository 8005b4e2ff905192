package rdmacm

import (
	"context"
	"fmt"
	"math/bits"
	"net"
	"net/netip"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/cm"
	"github.com/goroce/goroce/wire"
)

// lookup finds the addresses of host and the number of port, in the order of the
// resolver. Literal ones take no resolver.
func lookup(ctx context.Context, space wire.PortSpace, hostPort string) (addrs []netip.Addr, port uint16, err error) {
	if err := ctx.Err(); err != nil {
		return nil, 0, err
	}
	host, service, err := net.SplitHostPort(hostPort)
	if err != nil {
		return nil, 0, err
	}
	network := "tcp"
	if space == wire.PortSpaceUDP {
		network = "udp"
	}
	n, err := net.DefaultResolver.LookupPort(ctx, network, service)
	if err != nil {
		return nil, 0, err
	}
	port = uint16(n)
	if host == "" {
		return nil, port, nil
	}
	if a, err := netip.ParseAddr(host); err == nil {
		return []netip.Addr{plain(a)}, port, nil
	}
	addrs, err = net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	for i, a := range addrs {
		addrs[i] = plain(a)
	}
	return addrs, port, err
}

// plain is an address as GIDs have it.
func plain(a netip.Addr) netip.Addr { return a.Unmap().WithZone("") }

// source returns the address of the port's GID table from which to reach remote:
// of the same family, link-local for link-local, else the one with the longest
// common prefix (RFC 6724, section 5, rules 1, 2 and 8).
func source(gids []ib.GIDEntry, remote netip.Addr) (best netip.Addr, ok bool) {
	most := -1
	for _, e := range gids {
		a := e.GID.Addr()
		if a.Is4() != remote.Is4() || a.Is6() && a.IsLinkLocalUnicast() != remote.IsLinkLocalUnicast() {
			continue
		}
		if n := commonPrefix(e.GID, ib.GIDFromAddr(remote)); n > most {
			best, most = a, n
		}
	}
	return best, most >= 0
}

// commonPrefix counts the leading bits that two GIDs share.
func commonPrefix(a, b ib.GID) int {
	for i := range a {
		if x := a[i] ^ b[i]; x != 0 {
			return 8*i + bits.LeadingZeros8(x)
		}
	}
	return 8 * len(a)
}

// choose returns the first of the remote addresses that the device has a source
// address for, and that. local is the one that the caller wants, if it is valid.
func choose(gids []ib.GIDEntry, remotes []netip.Addr, local netip.Addr) (remote, src netip.Addr, err error) {
	for _, r := range remotes {
		if r.IsMulticast() || r.IsUnspecified() {
			return r, r, refuse("find a path", "address", r, "the peer's own address, no group")
		}
		if !local.IsValid() {
			if a, ok := source(gids, r); ok {
				return r, a, nil
			}
		} else if local.Is4() == r.Is4() {
			_, err := gidIndex(gids, ib.GIDFromAddr(local))
			return r, local, err
		}
	}
	if local.IsValid() {
		return remote, src, refuse("find a path", "Local", local, fmt.Sprintf("an address of the same family as the peer's, %v", remotes))
	}
	return remote, src, refuse("find a path", "address", remotes, "one of the family and scope of an address of the device: "+list(gids))
}

// list names the addresses of a GID table.
func list(gids []ib.GIDEntry) string {
	s := ""
	for i, e := range gids {
		if i > 0 {
			s += ", "
		}
		s += e.GID.Addr().String()
	}
	return s
}

// gidIndex returns the row of a local GID.
func gidIndex(gids []ib.GIDEntry, gid ib.GID) (int, error) {
	for i := range gids {
		if gids[i].GID == gid {
			return gids[i].Index, nil
		}
	}
	return 0, refuse("find a path", "local address", gid.Addr(), "one of the device: "+list(gids))
}

// addressVector turns a path into what QPs and address handles take.
func addressVector(dev ib.Device, p *cm.Path) (ib.AHAttr, error) {
	gids, err := dev.GIDs(1)
	if err != nil {
		return ib.AHAttr{}, err
	}
	index, err := gidIndex(gids, p.Local)
	return ib.AHAttr{DGID: p.Remote, SGIDIndex: index, Port: 1, TrafficClass: p.TrafficClass, HopLimit: p.HopLimit, FlowLabel: p.FlowLabel}, err
}

// route is the way to a peer.
type route struct {
	local, remote netip.AddrPort
	held          portKey // the source port
	path          cm.Path
	service       uint64
}

// route finds the way to addr and takes a source port, which the caller releases.
func (c *CM) route(ctx context.Context, addr string, o *Config) (r route, err error) {
	remotes, port, err := lookup(ctx, o.Space, addr)
	if err != nil {
		return r, err
	}
	if len(remotes) == 0 {
		return r, &net.AddrError{Err: "missing host", Addr: addr}
	}
	gids, err := c.dev.GIDs(1)
	if err != nil {
		return r, err
	}
	want := plain(o.Local.Addr())
	if want.IsValid() && want.IsUnspecified() {
		want = netip.Addr{}
	}
	remote, local, err := choose(gids, remotes, want)
	if err != nil {
		return r, err
	}
	if r.held, err = c.sourcePort(o); err != nil {
		return r, err
	}
	r.local, r.remote = netip.AddrPortFrom(local, r.held.port), netip.AddrPortFrom(remote, port)
	if r.service = o.ServiceID; r.service == 0 {
		r.service = o.Space.ServiceID(port)
	}
	// The flow label is that of cma_get_roce_udp_flow_label, Linux.
	r.path = cm.Path{Local: ib.GIDFromAddr(local), Remote: ib.GIDFromAddr(remote), FlowLabel: (uint32(r.held.port)*31 + uint32(port)) & 0xFFFFF}
	return r, nil
}

// sourcePort takes the port that o asks for, or one that is free.
func (c *CM) sourcePort(o *Config) (portKey, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	k := portKey{o.Space, o.Local.Port()}
	switch {
	case c.err != nil:
		return portKey{}, c.err
	case k.port == 0:
		return c.ports.pick(o.Space)
	}
	if err := c.ports.take(k, true); err != nil {
		return portKey{}, err
	}
	return k, nil
}

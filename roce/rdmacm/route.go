package rdmacm

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"syscall"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/ib/driver"
)

// lookup returns the addresses of host, in the order of the resolver, and the number of port. IP addresses are not sent
// to the resolver.
func lookup(ctx context.Context, space ib.PortSpace, hostPort string) (addrs []netip.Addr, port uint16, err error) {
	if err := ctx.Err(); err != nil {
		return nil, 0, err
	}
	host, service, err := net.SplitHostPort(hostPort)
	if err != nil {
		return nil, 0, err
	}
	network := "tcp"
	if space == ib.PortSpaceUDP {
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
		return []netip.Addr{a.Unmap()}, port, nil
	}
	addrs, err = net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	for i, a := range addrs {
		addrs[i] = a.Unmap()
	}
	return addrs, port, err
}

// choose returns the first of the remote addresses that can be reached from an address of the device, or from local if
// that is valid.
func choose(gids []ib.GIDEntry, remotes []netip.Addr, local netip.Addr) (remote netip.Addr, err error) {
	for _, r := range remotes {
		if r.IsMulticast() || r.IsUnspecified() {
			return r, refuse("find a path", "address", r, "the peer's own address, no group")
		}
		if !local.IsValid() {
			if _, ok := ib.SourceGID(gids, r.WithZone("")); ok {
				return r, nil
			}
		} else if local.Is4() == r.Is4() {
			if !holds(gids, local) {
				return r, refuse("find a path", "local address", local, "one of the device: "+driver.ListGIDs(gids))
			}
			return r, nil
		}
	}
	if local.IsValid() {
		return remote, refuse("find a path", "Local", local,
			fmt.Sprintf("an address of the same family as the peer's, %v", remotes))
	}
	return remote, refuse("find a path", "address", remotes,
		"one of the family and scope of an address of the device: "+driver.ListGIDs(gids))
}

// holds reports whether a GID table has an address.
func holds(gids []ib.GIDEntry, a netip.Addr) bool {
	return slices.ContainsFunc(gids, func(e ib.GIDEntry) bool { return e.GID == ib.GIDFromAddr(a) })
}

// route is the route to a peer, with the ID that has resolved it.
type route struct {
	id            ib.CMID
	local, remote netip.AddrPort
	ah            ib.AHAttr
}

// route resolves addr. The caller closes the ID.
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
	local := driver.PlainAddr(o.Local.Addr())
	if local.IsValid() && local.IsUnspecified() {
		local = netip.Addr{} // which ResolveAddr chooses
	}
	remote, err := choose(gids, remotes, local)
	if err != nil {
		return r, err
	}
	id, s, err := c.newID(ib.CMIDInit{Space: o.Space, Type: o.Service, ServiceID: o.ServiceID})
	if err != nil {
		return r, err
	}
	r.id = id
	err = s.resolve(ctx, o, netip.AddrPortFrom(local, o.Local.Port()), netip.AddrPortFrom(remote, port))
	var q ib.CMIDAttr
	if err == nil {
		q, err = id.Query()
	}
	if err != nil {
		c.mu.Lock()
		c.forget(id)
		c.mu.Unlock()
		return r, err
	}
	r.local, r.remote, r.ah = q.Local, q.Remote, q.AH
	return r, nil
}

// resolver is the owner of an ID while its addresses are resolved.
type resolver struct {
	cm   *CM
	id   ib.CMID
	next chan ib.CMEvent
	done chan struct{} // closed when the CM is
	err  error         // the cause; set before done is closed
}

// newID creates an ID, with a resolver as its owner.
func (c *CM) newID(init ib.CMIDInit) (ib.CMID, *resolver, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return nil, nil, c.err
	}
	id, err := c.ch.CreateID(init)
	if err != nil {
		return nil, nil, err
	}
	s := &resolver{cm: c, id: id, next: make(chan ib.CMEvent, 1), done: make(chan struct{})}
	c.owners[id] = s
	return id, s, nil
}

// resolve resolves address and route of an ID, so that it can connect.
func (s *resolver) resolve(ctx context.Context, o *Config, local, remote netip.AddrPort) error {
	timeout := max(timeLeft(ctx), 0)
	if _, err := s.do(ctx, ib.CMAddrResolved, func() error {
		return s.id.ResolveAddr(local, remote, timeout)
	}); err != nil {
		return err
	}
	if o.Service != ib.UD {
		if err := s.id.SetOption(ib.CMOptionAckTimeout, o.AckTimeout); err != nil {
			return err
		}
		if err := s.id.SetOption(ib.CMOptionPathMTU, int(o.PathMTU)); err != nil {
			return err
		}
	}
	_, err := s.do(ctx, ib.CMRouteResolved, func() error { return s.id.ResolveRoute(timeout) })
	if errno := syscall.Errno(0); errors.As(err, &errno) {
		return &UnreachableError{o.op(), remote, errno}
	}
	return err
}

// do calls step and waits for the event that step raises, which must be of type want.
func (s *resolver) do(ctx context.Context, want ib.CMEventType, step func() error) (ib.CMEvent, error) {
	if err := step(); err != nil {
		return ib.CMEvent{}, err
	}
	select {
	case ev := <-s.next:
		if ev.Type == ib.CMRouteError && ev.Errno() != 0 {
			return ev, ev.Errno()
		}
		if ev.Type != want {
			return ev, fmt.Errorf("%v, status %d: %w", ev.Type, ev.Status, ib.ErrNoAddr)
		}
		return ev, nil
	case <-s.done:
		return ib.CMEvent{}, s.err
	case <-ctx.Done():
		return ib.CMEvent{}, ctx.Err()
	}
}

func (s *resolver) event(ev *ib.CMEvent) {
	select {
	case s.next <- *ev:
	default: // not waited for: the port has lost an address
	}
}

func (s *resolver) end(err error) {
	s.err = err
	close(s.done)
}

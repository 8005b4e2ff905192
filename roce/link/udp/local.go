package udp

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/link/internal/group"
)

// AddLocal opens a socket for the address.
func (c *conn) AddLocal(g ib.GID) error {
	return c.local.Add(g, func() error {
		var s *socket
		err := c.ns.Do(func() (err error) {
			s, err = c.localSocket(g)
			return err
		})
		if err != nil {
			return fmt.Errorf("udp link: add address %v: %w", g.Addr(), err)
		}
		c.sockets.Lock()
		defer c.sockets.Unlock()
		c.socks = append(c.socks, s)
		c.rx.socks = append(c.rx.socks, s)
		c.poller.AddSocket(s.fd)
		err = c.ns.Do(func() error { return c.rejoin(s) })
		if err != nil {
			c.closeSockets(g)
		}
		return err
	})
}

// rejoin makes s's interface a member of the groups that the link has joined, if it is not
// yet: it may be another interface than when they were. After an error nothing has changed. The caller holds c.sockets.
func (c *conn) rejoin(s *socket) error {
	before := len(c.rx.socks)
	for _, member := range slices.Clone(c.rx.socks) {
		g := member.local
		have := func(o *socket) bool { return o.local == g && o.index == s.index }
		if !group.Is(&g) || g.Is4() != s.is4 || slices.ContainsFunc(c.rx.socks, have) {
			continue
		}
		added, err := groupSocket(g, s.index)
		if err != nil {
			for _, added := range c.rx.socks[before:] {
				c.poller.Remove(added.fd)
				c.closeSocket(added)
			}
			c.rx.socks = slices.Delete(c.rx.socks, before, len(c.rx.socks))
			return fmt.Errorf("udp link: join %v again: %w", g.Addr(), err)
		}
		added.setRecvBuffer(c.recvBuffer)
		c.rx.socks = append(c.rx.socks, added)
		c.poller.Add(added.fd)
	}
	return nil
}

// localSocket returns the socket of an address that the link did not have.
func (c *conn) localSocket(g ib.GID) (*socket, error) {
	a := c.addrOf(g)
	d, err := findDevice(a)
	if err != nil {
		return nil, err
	}
	s, err := c.openSocket(a, d.Index)
	if err != nil {
		return nil, err
	}
	s.setRecvBuffer(c.recvBuffer)
	return s, nil
}

// addrOf returns the address of a GID with its zone: the one passed to Open, or the link's interface.
func (c *conn) addrOf(g ib.GID) netip.Addr {
	a := g.Addr()
	i := slices.IndexFunc(c.opened, func(o netip.Addr) bool { return o.WithZone("") == a })
	switch {
	case i >= 0:
		return c.opened[i]
	case a.Is6() && a.IsLinkLocalUnicast():
		return a.WithZone(c.caps.NetIf)
	}
	return a
}

// RemoveLocal closes the socket of the address. Send and Recv do not use it meanwhile, and Remove ends its use by Wait.
func (c *conn) RemoveLocal(g ib.GID) error {
	return c.local.Remove(g, func() error {
		c.sockets.Lock()
		defer c.sockets.Unlock()
		c.closeSockets(g)
		return nil
	})
}

// closeSockets closes the sockets of an address or a group. The caller holds c.sockets.
func (c *conn) closeSockets(g ib.GID) {
	own := func(s *socket) bool { return s.local == g }
	for _, s := range c.rx.socks {
		if own(s) {
			c.poller.Remove(s.fd)
			c.closeSocket(s)
		}
	}
	c.rx.socks = slices.DeleteFunc(c.rx.socks, own)
	c.socks = slices.DeleteFunc(c.socks, own)
}

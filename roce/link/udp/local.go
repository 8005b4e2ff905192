package udp

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/link/internal/sock"
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
		return nil
	})
}

// localSocket opens the socket of an address that the link does not have.
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
	sock.SetRecvBuffer(s.fd, c.recvBuffer)
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

package udp

import (
	"errors"
	"fmt"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/link"
	"github.com/goroce/goroce/roce/link/internal/group"
	"github.com/goroce/goroce/roce/link/internal/sock"
	"github.com/goroce/goroce/roce/link/port"
)

// Join opens sockets that receive frames to the group. They also receive what this host sends there itself:
// IP_MULTICAST_LOOP is on by default.
func (c *conn) Join(g ib.GID) error {
	c.sockets.Lock()
	defer c.sockets.Unlock()
	if c.closed.Load() {
		return link.ErrClosed
	}
	if err := group.CheckJoin(&c.caps, c.local.List(), g, c.rx.member(&g)); err != nil {
		return err
	}
	var socks []*socket
	err := c.ns.Do(func() (err error) {
		socks, err = c.groupSockets(g)
		return err
	})
	if err != nil {
		return fmt.Errorf("udp link: join %v: %w", g.Addr(), err)
	}
	for _, s := range socks {
		c.rx.socks = append(c.rx.socks, s)
		c.poller.Add(s.fd)
	}
	return nil
}

// Leave closes the group's sockets. Recv does not use them meanwhile, and Remove ends their use by Wait.
func (c *conn) Leave(g ib.GID) error {
	c.sockets.Lock()
	defer c.sockets.Unlock()
	if c.closed.Load() {
		return link.ErrClosed
	}
	if err := group.CheckLeave(&c.caps, g, c.rx.member(&g)); err != nil {
		return err
	}
	c.closeSockets(g)
	return nil
}

// member reports whether the group is joined.
func (r *rxState) member(g *ib.GID) bool {
	return group.Is(g) && slices.ContainsFunc(r.socks, func(s *socket) bool { return s.local == *g })
}

// groupSockets opens a socket for g on each interface that has an address of its IP version; a link-local group is a
// different one on each.
func (c *conn) groupSockets(g ib.GID) (socks []*socket, err error) {
	for i := range c.socks {
		index := c.socks[i].index
		have := func(s *socket) bool { return s.index == index }
		if c.socks[i].is4 != g.Is4() || slices.ContainsFunc(socks, have) {
			continue
		}
		s, err := groupSocket(g, index)
		if err != nil {
			for _, s := range socks {
				_ = unix.Close(s.fd)
			}
			return nil, err
		}
		s.setRecvBuffer(c.recvBuffer)
		socks = append(socks, s)
	}
	return socks, nil
}

// groupSocket returns a socket that receives only frames to g from one interface. Sockets that are bound to a unicast
// address receive no multicast, and one that is not bound to an address would receive too much.
func groupSocket(g ib.GID, index int) (*socket, error) {
	a := g.Addr()
	s, err := newSocket(a, index)
	if err != nil {
		return nil, err
	}
	err = setOptions(s.fd, []option{
		{"SO_REUSEADDR", unix.SOL_SOCKET, unix.SO_REUSEADDR, 1, false}, // other programs may be members
		// Before Linux 5.7 this needs CAP_NET_RAW. Without it the socket also receives frames to the group from another
		// interface, if another program has joined the group there.
		{"SO_BINDTOIFINDEX", unix.SOL_SOCKET, unix.SO_BINDTOIFINDEX, index, true},
	})
	if err == nil {
		err = os.NewSyscallError("bind", unix.Bind(s.fd, sockaddr(a, link.Port, index)))
	}
	if err == nil {
		err = sock.Join(s.fd, index, &g)
	}
	if err == nil {
		return s, nil
	}
	_ = unix.Close(s.fd)
	if errors.Is(err, unix.EADDRINUSE) {
		err = port.Taken(a)
	}
	return nil, err
}

// sendGroupsBy makes the socket send frames to groups by one interface, that of its address, whatever the routes say.
// IPv4 would look that up itself.
func (s *socket) sendGroupsBy(index int) error {
	if s.is4 {
		err := unix.SetsockoptIPMreqn(s.fd, unix.IPPROTO_IP, unix.IP_MULTICAST_IF, &unix.IPMreqn{Ifindex: int32(index)})
		return os.NewSyscallError("setsockopt IP_MULTICAST_IF", err)
	}
	return os.NewSyscallError("setsockopt IPV6_MULTICAST_IF",
		unix.SetsockoptInt(s.fd, unix.IPPROTO_IPV6, unix.IPV6_MULTICAST_IF, index))
}

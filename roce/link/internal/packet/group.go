package packet

import (
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/link"
	"github.com/goroce/goroce/roce/link/internal/group"
	"github.com/goroce/goroce/roce/link/internal/sock"
)

// members receives frames to the joined groups, by a packet socket that also gets what this host sends. The main packet
// socket does not, which would slow down unicast traffic.
type members struct {
	mu     sync.Mutex     // any goroutine may call Join and Leave
	fd     int            // packet socket, -1 while no group is joined
	joined map[ib.GID]int // groups, with the sockets that make the host a member
}

// Join makes the host a member of the group, and receives its frames.
func (c *Conn) Join(g ib.GID) error {
	m := &c.members
	m.mu.Lock()
	defer m.mu.Unlock()
	if c.closed.Load() {
		return link.ErrClosed
	}
	if err := group.CheckJoin(&c.caps, c.local.List(), g, m.has(&g)); err != nil {
		return err
	}
	if err := c.ns.Do(func() error { return c.join(g) }); err != nil {
		return fmt.Errorf("%s link: join %v: %w", c.caps.Name, g.Addr(), err)
	}
	return nil
}

func (c *Conn) join(g ib.GID) error {
	fd, err := membership(&g, c.netif.Index)
	if err != nil {
		return err
	}
	if c.members.fd < 0 {
		if err := c.listen(); err != nil {
			_ = unix.Close(fd)
			return err
		}
	}
	c.members.joined[g] = fd
	return nil
}

// membership returns a socket that is a member of the group. It is not bound to a port, so it receives nothing.
func membership(g *ib.GID, index int) (int, error) {
	family := unix.AF_INET6
	if g.Is4() {
		family = unix.AF_INET
	}
	fd, err := unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, os.NewSyscallError("socket", err)
	}
	if err := sock.Join(fd, index, g); err != nil {
		_ = unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// rejoin returns memberships of all groups on an interface. The caller holds m.mu.
func (m *members) rejoin(index int) (map[ib.GID]int, error) {
	joined := make(map[ib.GID]int)
	for g := range m.joined {
		fd, err := membership(&g, index)
		if err != nil {
			closeAll(joined)
			return nil, fmt.Errorf("join %v again: %w", g.Addr(), err)
		}
		joined[g] = fd
	}
	return joined, nil
}

// listen opens the packet socket. Its filter also accepts packets to this host, because a switch or an access point may
// have turned a multicast frame into a unicast frame.
func (c *Conn) listen() error {
	filter := append(passing(unix.PACKET_MULTICAST, unix.PACKET_HOST, unix.PACKET_OUTGOING), toGroups()...)
	fd, err := packetSocket(filter, c.netif.Loopback) // loopback delivers what is sent anyway
	if err != nil {
		return err
	}
	sock.SetRecvBuffer(fd, c.recvBuffer)
	if err := bind(fd, &c.netif); err != nil {
		_ = unix.Close(fd)
		return err
	}
	c.members.fd, c.rx.gauges[1] = fd, sock.NewGauge(fd)
	c.poller.Add(fd)
	return nil
}

// Leave ends the host's membership; other programs may have their own. Recv does not use the packet socket meanwhile,
// and Remove ends its use by Wait.
func (c *Conn) Leave(g ib.GID) error {
	m := &c.members
	m.mu.Lock()
	defer m.mu.Unlock()
	if c.closed.Load() {
		return link.ErrClosed
	}
	fd, joined := m.joined[g]
	if err := group.CheckLeave(&c.caps, g, joined); err != nil {
		return err
	}
	_ = unix.Close(fd)
	delete(m.joined, g)
	if len(m.joined) == 0 {
		c.poller.Remove(m.fd)
		_ = unix.Close(m.fd)
		m.fd = -1
	}
	return nil
}

// has reports whether the group is joined. The caller holds m.mu.
func (m *members) has(g *ib.GID) bool {
	_, joined := m.joined[*g]
	return joined
}

func (m *members) close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	closeAll(m.joined)
	if m.fd >= 0 {
		_ = unix.Close(m.fd)
	}
}

func closeAll(memberships map[ib.GID]int) {
	for _, fd := range memberships {
		_ = unix.Close(fd)
	}
}

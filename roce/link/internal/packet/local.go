package packet

import (
	"fmt"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/neigh"
)

// AddLocal reserves the port at the address and receives its frames.
func (c *Conn) AddLocal(g ib.GID) error {
	return c.AddLocalWith(g, func([]ib.GID) error { return nil })
}

// RemoveLocal stops receiving frames to an address and releases its port.
func (c *Conn) RemoveLocal(g ib.GID) error {
	return c.RemoveLocalWith(g, func([]ib.GID) error { return nil })
}

// AddLocalWith is AddLocal for a link that also needs the list of all addresses. If tell fails nothing changes.
func (c *Conn) AddLocalWith(g ib.GID, tell func(all []ib.GID) error) error {
	return c.local.Add(g, func() error {
		all := append(slices.Clone(c.local.List()), g)
		err := c.ns.Do(func() error { return c.addLocal(g, all, tell) })
		if err != nil {
			return fmt.Errorf("%s link: add address %v: %w", c.caps.Name, g.Addr(), err)
		}
		return nil
	})
}

func (c *Conn) addLocal(g ib.GID, all []ib.GID, tell func([]ib.GID) error) error {
	if err := c.follow(g.Addr()); err != nil {
		return err
	}
	guard, err := newGuard(g.Addr(), c.netif.Index)
	if err != nil {
		return err
	}
	if err = c.letIn(all); err == nil {
		err = tell(all)
	}
	if err != nil {
		_ = c.letIn(c.local.List())
		guard.close()
		return err
	}
	c.guards[g] = guard
	return nil
}

// follow binds the packet sockets to the interface that holds a, if it was deleted and made
// again under its name. Memberships of groups and known neighbours went with the old one.
// netif changes only here, with the lock of local, c.mu and members.mu held; each suffices to read it.
func (c *Conn) follow(a netip.Addr) error {
	n, err := neigh.Holding(a)
	if err != nil || n.Index == c.netif.Index || n.Name != c.netif.Name {
		return err
	}
	peers, err := neigh.NewTable(n, c.learned)
	if err != nil {
		return err
	}
	old, err := c.bindTo(n, peers)
	old.Close()
	return err
}

// bindTo does what follow says, while nobody sends or receives. It returns the table of
// neighbours that the caller must close: the old one, or peers if it fails before the change.
func (c *Conn) bindTo(n neigh.NetIf, peers *neigh.Table) (old *neigh.Table, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	m := &c.members
	m.mu.Lock()
	defer m.mu.Unlock()
	joined, err := m.rejoin(n.Index)
	if err == nil {
		err = bind(c.fd, &n)
	}
	if err == nil && m.fd >= 0 {
		err = bind(m.fd, &n)
	}
	if err != nil { // a socket that is bound to n already is bound again by the next call
		closeAll(joined)
		return peers, err
	}
	closeAll(m.joined)
	m.joined = joined
	old, c.peers, c.netif = c.peers, peers, n
	return old, nil
}

// RemoveLocalWith is RemoveLocal for a link that must be told what addresses are left.
func (c *Conn) RemoveLocalWith(g ib.GID, tell func(left []ib.GID) error) error {
	return c.local.Remove(g, func() error {
		left := c.local.List()
		err := c.letIn(left)
		if e := tell(left); err == nil {
			err = e
		}
		c.guards[g].close()
		delete(c.guards, g)
		if err != nil {
			return fmt.Errorf("%s link: remove address %v: %w", c.caps.Name, g.Addr(), err)
		}
		return nil
	})
}

// letIn makes the packet socket receive packets to these addresses, from the next packet on.
func (c *Conn) letIn(gids []ib.GID) error {
	return attach(c.fd, append(passing(unix.PACKET_HOST), ours(gids)...))
}

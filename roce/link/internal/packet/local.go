package packet

import (
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/goroce/goroce/ib"
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

// RemoveLocalWith is RemoveLocal for a link that also needs the list of the remaining addresses.
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

// Package pathmtu checks path MTUs, and tells packets that are too long for a path from a peer that is gone. A path
// whose ICMP messages are dropped swallows long packets without a word, and short ones pass.
package pathmtu

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/ib/driver"
	"github.com/goroce/goroce/roce/rdmacm"
	"github.com/goroce/goroce/wire"
)

// ErrPathMTU: packets of the connection's path MTU do not reach the peer.
var ErrPathMTU = errors.New("the path MTU is too large")

// Common fits the Ethernet MTU of 1500.
const Common = ib.MTU1024

// patience is how long the peer may take to show that it is there.
const patience = 2 * time.Second

// Check refuses an option that is not a path MTU of the device's port. 0 stands for the largest.
func Check(tool string, dev ib.Device, mtu ib.MTU) error {
	port, err := dev.QueryPort(1)
	switch {
	case err != nil:
		return err
	case mtu != 0 && !mtu.Valid():
		return driver.CheckMTU(tool, mtu)
	case mtu > port.ActiveMTU:
		return driver.Refuse(tool, "MTU", mtu,
			fmt.Sprintf("at most %d, which is what the packets of %s carry", port.ActiveMTU, port.NetIf), ib.ErrInvalid)
	}
	return nil
}

// Blame returns an error that matches ErrPathMTU if a connection that was made for messages of that size lost long
// packets only: the peer's connection manager still answers. It disconnects to find that out. It returns nil if the
// cause is another one.
func Blame(ctx context.Context, c *rdmacm.Conn, size int) error {
	mtu := c.QPAttr().PathMTU
	if min(int(mtu), size) <= wire.MADLen {
		return nil // its packets are not longer than those by which it was made
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := c.Disconnect(ctx); err != nil || errors.Is(c.Err(), rdmacm.ErrDisconnected) {
		return nil
	}
	return fmt.Errorf("%w: packets with %d bytes do not reach %v, but short ones do, so that a link on the way must "+
		"be narrower and a firewall drop the ICMP messages that say so; try --mtu %d", ErrPathMTU, mtu,
		c.RemoteAddr().Addr(), smaller(mtu))
}

// Hint returns what to try when packets may have been too long, to be appended to an error; "" if they are of a size
// that passes nearly everywhere.
func Hint(mtu ib.MTU) string {
	if mtu <= Common {
		return ""
	}
	return fmt.Sprintf("; if a link on the way does not carry packets of path MTU %d, try --mtu %d", mtu, smaller(mtu))
}

func smaller(mtu ib.MTU) ib.MTU {
	if mtu > Common {
		return Common
	}
	return ib.MTU256
}

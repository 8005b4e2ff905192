//go:build rnic && cgo

package rnic

// #include "cmshim.h"
import "C"

import (
	"net"
	"net/netip"
	"unsafe"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/ib/driver"
)

// This file converts addresses between net/netip and the flat struct of cmshim.h, and to addresses of the device. The
// kernel's connection manager serves all RDMA devices of the machine, and chooses one by the address. So an address
// that stands for this host, such as 127.0.0.1, is replaced by one of the device.

// cmRow is a row of the GID table of a port.
type cmRow struct {
	ib.GIDEntry
	port int
}

// rows returns the rows of the GID tables of all ports. It locks the device's mutex for each. They are read anew for
// each use, since addresses come and go.
func (p *cmPort) rows() (rows []cmRow, err error) {
	for port := 1; port <= p.dev.attr.Ports; port++ {
		gids, err := p.dev.GIDs(port)
		if err != nil {
			return nil, err
		}
		for _, g := range gids {
			rows = append(rows, cmRow{g, port})
		}
	}
	return rows, nil
}

// row finds the row of an address of the device; the zero row if there is none, which has port 0. It also returns all
// rows, for error messages.
func (p *cmPort) row(a netip.Addr) (found cmRow, rows []cmRow, err error) {
	rows, err = p.rows()
	for _, r := range rows {
		if r.GID == ib.GIDFromAddr(a) {
			return r, rows, err
		}
	}
	return cmRow{}, rows, err
}

// localAddr returns the device's address for a: a itself, or for a loopback address the device's
// first address of that family, since the kernel could resolve a loopback address to another
// device.
func (p *cmPort) localAddr(op string, a netip.Addr) (netip.Addr, error) {
	found, rows, err := p.row(a)
	if err != nil || found.port != 0 {
		return a, err
	}
	var gids []ib.GIDEntry
	for _, r := range rows {
		if a.IsLoopback() && r.GID.Is4() == a.Is4() {
			return r.GID.Addr(), nil
		}
		gids = append(gids, r.GIDEntry)
	}
	return a, driver.Refuse(op, "address", a,
		"one of the device: "+driver.ListGIDs(gids)+"; an unspecified one for all of "+
			"them",
		ib.ErrNoAddr)
}

// ownAddr is localAddr for a peer on this host: it also maps an unspecified address to the
// device's first address of that family.
func (p *cmPort) ownAddr(op string, a netip.Addr) (netip.Addr, error) {
	if !a.IsUnspecified() {
		return p.localAddr(op, a)
	}
	if a.Is4() {
		return p.localAddr(op, netip.AddrFrom4([4]byte{127, 0, 0, 1}))
	}
	return p.localAddr(op, netip.IPv6Loopback())
}

// netif returns the network interface of the device, the zone of its link-local addresses; "" if it has no address.
func (p *cmPort) netif() string {
	rows, _ := p.rows()
	if len(rows) == 0 {
		return ""
	}
	return rows[0].NetIf
}

// checkZone refuses a link-local address of another link than the device's.
func (p *cmPort) checkZone(op string, a netip.Addr, refusal error) error {
	if a.Zone() == "" || !a.IsLinkLocalUnicast() {
		return nil
	}
	own := p.netif()
	if own == "" || own == a.Zone() {
		return nil
	}
	return driver.Refuse(op, "zone", a, "the device's interface, "+own, refusal)
}

// unspecifiedOf returns the unspecified address of a's family.
func unspecifiedOf(a netip.Addr) netip.Addr {
	if a.Is4() {
		return netip.IPv4Unspecified()
	}
	return netip.IPv6Unspecified()
}

// cAddr returns the C form of an address. A link-local address gets the scope of the device's interface, without which
// the kernel does not accept it. A zone that the program has given is that interface (checkZone), and gone by then
// (driver.PlainAddr). An invalid address becomes family 0, which cmshim.c passes on as NULL.
func (p *cmPort) cAddr(a netip.AddrPort) (c C.struct_rnic_addr) {
	if !a.Addr().IsValid() {
		return c
	}
	*(*[16]byte)(unsafe.Pointer(&c.ip)) = a.Addr().As16()
	c.port, c.family = C.uint16_t(a.Port()), 6
	if a.Addr().Is4() {
		c.family = 4
	}
	if a.Addr().IsLinkLocalUnicast() || a.Addr().IsLinkLocalMulticast() {
		if netif, err := net.InterfaceByName(p.netif()); err == nil {
			c.scope = C.uint32_t(netif.Index)
		}
	}
	return c
}

// goAddr is the inverse of cAddr, but for the scope: the result has no zone.
func goAddr(c *C.struct_rnic_addr) netip.AddrPort {
	if c.family == 0 {
		return netip.AddrPort{}
	}
	ip := netip.AddrFrom16(*(*[16]byte)(unsafe.Pointer(&c.ip)))
	return netip.AddrPortFrom(driver.PlainAddr(ip), uint16(c.port))
}

// Package group has what drivers need for multicast groups: which GIDs are groups ([Is]), which groups a link can join
// ([CheckJoin]), and to which MAC address their frames go ([MAC]).
package group

import (
	"fmt"
	"slices"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/ib/driver"
	"github.com/goroce/goroce/roce/link"
)

// Is reports whether g is a multicast address: of 224.0.0.0/4 (RFC 1112) or
// ff00::/8 (RFC 4291, 2.7).
func Is(g *ib.GID) bool { return g[0] == 0xFF || g[12]&0xF0 == 0xE0 && g.Is4() }

// MAC returns the MAC address of a group: 01:00:5e and the last 23 bits of an IPv4 group (RFC 1112, 6.4), 33:33 and the
// last 32 bits of an IPv6 group (RFC 2464, 7).
func MAC(g *ib.GID) [6]byte {
	if g.Is4() {
		return [6]byte{0x01, 0x00, 0x5E, g[13] & 0x7F, g[14], g[15]}
	}
	return [6]byte{0x33, 0x33, g[12], g[13], g[14], g[15]}
}

// CheckJoin returns why a link with these addresses cannot join g, or nil.
func CheckJoin(c *link.Caps, local []ib.GID, g ib.GID, joined bool) error {
	switch {
	case !Is(&g):
		return refused(c, "join", g, "a multicast address, of 224.0.0.0/4 or ff00::/8")
	case !slices.ContainsFunc(local, func(l ib.GID) bool { return l.Is4() == g.Is4() }):
		return refused(c, "join", g, "a group of an IP version that the link has an address of")
	case joined:
		return refused(c, "join", g, "a group that is not joined yet")
	}
	return nil
}

// CheckLeave returns why a link cannot leave g, or nil.
func CheckLeave(c *link.Caps, g ib.GID, joined bool) error {
	if joined {
		return nil
	}
	return refused(c, "leave", g, "a group that was joined")
}

func refused(c *link.Caps, verb string, g ib.GID, allowed string) error {
	return driver.Refuse(fmt.Sprintf("%s multicast group on link %s", verb, c.Name), "group", g.Addr(), allowed,
		ib.ErrInvalid)
}

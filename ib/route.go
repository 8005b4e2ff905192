package ib

import (
	"math/bits"
	"net/netip"
)

// SourceGID returns the entry of a GID table from which to reach dst: of the same family; for IPv6 link-local if and
// only if dst is; among those the one with the longest common prefix (RFC 6724, section 5, rules 1, 2 and 8). For a
// multicast group it is the first entry of the family that is link-local if and only if the group is, or else the first
// of the family. ok is false if no entry fits.
func SourceGID(gids []GIDEntry, dst netip.Addr) (best GIDEntry, ok bool) {
	most := -1
	for _, e := range gids {
		a := e.GID.Addr()
		if a.Is4() != dst.Is4() {
			continue
		}
		n := 0
		switch {
		case dst.IsMulticast():
			if a.IsLinkLocalUnicast() == dst.IsLinkLocalMulticast() {
				n = 1
			}
		case a.Is6() && a.IsLinkLocalUnicast() != dst.IsLinkLocalUnicast():
			continue
		default:
			n = commonPrefix(e.GID, GIDFromAddr(dst))
		}
		if n > most {
			best, most = e, n
		}
	}
	return best, most >= 0
}

// commonPrefix counts the leading bits that two GIDs share.
func commonPrefix(a, b GID) int {
	for i := range a {
		if x := a[i] ^ b[i]; x != 0 {
			return 8*i + bits.LeadingZeros8(x)
		}
	}
	return 8 * len(a)
}

package meet

import (
	"net/netip"

	"github.com/goroce/goroce/ib"
)

// GID returns the row with the local address of the connection to the peer, which has proved that it reaches the
// peer; failing that, the first row of its IP version; failing that, the first. The table must not be empty.
func GID(table []ib.GIDEntry, local netip.Addr) *ib.GIDEntry {
	same := 0
	for i := len(table) - 1; i >= 0; i-- {
		switch a := table[i].GID.Addr(); {
		case a == local:
			return &table[i]
		case a.Is4() == local.Is4():
			same = i
		}
	}
	return &table[same]
}

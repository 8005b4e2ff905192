package meet

import (
	"net/netip"

	"github.com/goroce/goroce/ib"
)

// GID returns the row with the local address of the TCP connection, which certainly reaches the peer; otherwise the
// first row of its IP version; otherwise the first row. The table must not be empty.
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

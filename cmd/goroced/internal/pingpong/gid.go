package pingpong

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/ib/driver"
)

// gidText formats a GID as inet_ntop does: "::ffff:192.0.2.1".
func gidText(g ib.GID) string { return netip.AddrFrom16(g).String() }

// indexedGID returns the row with that index. Index -1 stands for the only row; if there are more, it returns nil.
func indexedGID(table []ib.GIDEntry, index int) (*ib.GIDEntry, error) {
	i := slices.IndexFunc(table, func(e ib.GIDEntry) bool { return e.Index == index })
	switch {
	case i >= 0:
		return &table[i], nil
	case index >= 0 || len(table) == 0:
		return nil, driver.Refuse("pingpong", "GIDIndex", index,
			fmt.Sprintf("one of the %d that `goroced devinfo -v` lists", len(table)), ib.ErrInvalid)
	case len(table) == 1:
		return &table[0], nil
	}
	return nil, nil
}

package perf

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/goroce/goroce/cmd/goroced/internal/meet"
	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/ib/driver"
)

// localGID returns the row of the table with that index or, if the index is negative, the one that fits the connection
// to the peer.
func localGID(table []ib.GIDEntry, index int, local netip.Addr) (*ib.GIDEntry, error) {
	if index >= 0 || len(table) == 0 {
		i := slices.IndexFunc(table, func(e ib.GIDEntry) bool { return e.Index == index })
		if i < 0 {
			return nil, driver.Refuse("perf", "GIDIndex", index,
				fmt.Sprintf("one of the %d that `goroced devinfo -v` lists", len(table)), ib.ErrInvalid)
		}
		return &table[i], nil
	}
	return meet.GID(table, local), nil
}

// gidText formats a GID as perftest does: its bytes in decimal.
func gidText(g ib.GID) string {
	var b strings.Builder
	for i, v := range g {
		if i > 0 {
			b.WriteByte(':')
		}
		fmt.Fprintf(&b, "%02d", v)
	}
	return b.String()
}

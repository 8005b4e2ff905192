package perf

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/goroce/goroce/ib"
)

// localGID chooses a row of the table: the one that is asked for, or else the one
// with the local address of the connection to the peer, which has proved that it
// reaches it, or else the first of its IP version.
func localGID(table []ib.GIDEntry, index int, local netip.Addr) (*ib.GIDEntry, error) {
	if index >= 0 || len(table) == 0 {
		i := slices.IndexFunc(table, func(e ib.GIDEntry) bool { return e.Index == index })
		if i < 0 {
			return nil, refuse("GIDIndex", index, fmt.Sprintf("one of the %d that `goroced devinfo -v` lists", len(table)))
		}
		return &table[i], nil
	}
	same := 0
	for i := len(table) - 1; i >= 0; i-- {
		switch a := table[i].GID.Addr(); {
		case a == local:
			return &table[i], nil
		case a.Is4() == local.Is4():
			same = i
		}
	}
	return &table[same], nil
}

// gidText is a GID as perftest prints it: its bytes in decimal.
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

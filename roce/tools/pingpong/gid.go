package pingpong

import (
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/goroce/goroce/ib"
)

// gidText is a GID as inet_ntop prints it: "::ffff:192.0.2.1".
func gidText(g ib.GID) string { return netip.AddrFrom16(g).String() }

// indexedGID returns a row of the table, nil if none is asked for and there is
// more than one.
func indexedGID(table []ib.GIDEntry, index int) (*ib.GIDEntry, error) {
	i := slices.IndexFunc(table, func(e ib.GIDEntry) bool { return e.Index == index })
	switch {
	case i >= 0:
		return &table[i], nil
	case index >= 0 || len(table) == 0:
		return nil, refuse("GIDIndex", index, fmt.Sprintf("one of the %d that `goroced devinfo -v` lists", len(table)))
	case len(table) == 1:
		return &table[0], nil
	}
	return nil, nil
}

// connectionGID returns the row with the local address of a TCP connection, which
// has proved that it reaches the peer, or else the first of its IP version.
func connectionGID(table []ib.GIDEntry, local netip.Addr) *ib.GIDEntry {
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

// tcpAddr returns the IP address of a TCP endpoint, without a zone.
func tcpAddr(a net.Addr) netip.Addr {
	ap, err := netip.ParseAddrPort(a.String())
	if err != nil {
		return netip.Addr{}
	}
	return ap.Addr().Unmap().WithZone("")
}

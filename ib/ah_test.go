package ib

import (
	"net/netip"
	"testing"
)

// TestAHFromWC: a datagram over IPv6 whose source address has a byte like the first one of an IPv4 header, and one over
// IPv4 whose undefined bytes look like IPv6, are answered to where they came from.
func TestAHFromWC(t *testing.T) {
	src6, dst6 := netip.MustParseAddr("fd00::4512:3456"), netip.MustParseAddr("fd00::2")
	v6 := append([]byte{0x61, 0x20, 0, 7, 0, 24, 17, 64}, append(src6.AsSlice(), dst6.AsSlice()...)...)
	v4 := append(make([]byte, 20),
		0x45, 0x12, 0, 44, 0, 0, 0x40, 0, 64, 17, 0x26, 0xAD, 10, 0, 0, 1, 10, 0, 0, 2)
	v4[0] = 0x60
	gids := []GIDEntry{{Index: 3, GID: GIDFromAddr(dst6)},
		{Index: 4, GID: GIDFromAddr(netip.MustParseAddr("10.0.0.2"))}}
	for _, c := range []struct {
		name string
		grh  []byte
		want AHAttr
	}{
		{"IPv6", v6, AHAttr{Port: 1, SGIDIndex: 3, TrafficClass: 0x12, FlowLabel: 7, DGID: GIDFromAddr(src6)}},
		{"IPv4", v4, AHAttr{Port: 1, SGIDIndex: 4, TrafficClass: 0x12,
			DGID: GIDFromAddr(netip.MustParseAddr("10.0.0.1"))}},
	} {
		if got, err := AHFromWC(gids, &WC{Flags: WCGRH}, c.grh); got != c.want || err != nil {
			t.Errorf("%s: %+v, %v, want %+v", c.name, got, err, c.want)
		}
	}
}

package ib

import (
	"strings"
	"testing"
)

// TestCMText: reasons, statuses and port spaces have names; what has none shows its number.
func TestCMText(t *testing.T) {
	for _, c := range []struct {
		got  interface{ String() string }
		want string
	}{
		{RejectNoQP, "no QP available"}, {RejectInvalidServiceID, "invalid service ID"},
		{RejectStale, "stale connection"},
		{RejectInvalidGID, "invalid GID"}, {RejectInvalidMTU, "invalid path MTU"}, {RejectConsumer, "consumer reject"},
		{RejectVendorOption, "vendor option not supported"},
		{RejectReason(0), "RejectReason(0)"}, {RejectReason(34), "RejectReason(34)"},
		{RejectReason(0xFFFF), "RejectReason(65535)"},
		{SIDRValid, "valid"}, {SIDRUnsupported, "service ID not supported"},
		{SIDRBadVersion, "unsupported class version"}, {SIDRStatus(6), "SIDRStatus(6)"},
		{PortSpaceIPoIB, "IPoIB"}, {PortSpaceTCP, "TCP"}, {PortSpaceUDP, "UDP"}, {PortSpaceIB, "IB"},
		{PortSpace(7), "PortSpace(0x0007)"},
	} {
		if got := c.got.String(); got != c.want {
			t.Errorf("got %q, want %q", got, c.want)
		}
	}
	for r := RejectNoQP; r <= RejectInvalidAltFlowLabel; r++ {
		if strings.Contains(r.String(), "(") {
			t.Errorf("reason %d has no name", r)
		}
	}
}

package ib

import (
	"strings"
	"syscall"
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
			t.Errorf("reason %d is %v, want a name", r, r)
		}
	}
}

// TestCMEventStatus: what Status means depends on the type of the event.
func TestCMEventStatus(t *testing.T) {
	for _, c := range []struct {
		e      CMEvent
		reason RejectReason
		sidr   SIDRStatus
		errno  syscall.Errno
	}{
		{CMEvent{Type: CMRejected, Status: 28}, RejectConsumer, 0, 0},
		{CMEvent{Type: CMUnreachable, Status: 2}, 0, SIDRReject, 0},
		{CMEvent{Type: CMUnreachable, Status: -110}, 0, 0, syscall.ETIMEDOUT},
		{CMEvent{Type: CMRouteError, Status: -113}, 0, 0, syscall.EHOSTUNREACH},
		{CMEvent{Type: CMEstablished}, 0, 0, 0},
	} {
		if reason, sidr, errno := c.e.RejectReason(), c.e.SIDRStatus(), c.e.Errno(); reason != c.reason ||
			sidr != c.sidr || errno != c.errno {
			t.Errorf("%v, status %d: got %v, %v, %v, want %v, %v, %v", c.e.Type, c.e.Status, reason, sidr, errno,
				c.reason, c.sidr, c.errno)
		}
	}
}

package group

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/link"
)

func gid(s string) ib.GID { return ib.GIDFromAddr(netip.MustParseAddr(s)) }

func TestIs(t *testing.T) {
	for s, want := range map[string]bool{
		"224.0.0.0": true, "239.255.255.255": true, "223.255.255.255": false, "240.0.0.0": false, "127.0.0.1": false,
		"ff02::1": true, "ff3e::8000:1": true, "fe80::1": false, "::": false, "2001:db8::e000:1": false,
		"::224.0.0.1": false, // IPv4-compatible, not mapped
	} {
		g := gid(s)
		if Is(&g) != want || g.Addr().IsMulticast() != want {
			t.Errorf("%s is a group: %v, want %v", s, Is(&g), want)
		}
	}
}

func TestMAC(t *testing.T) {
	for s, want := range map[string][6]byte{
		"224.0.0.251":          {0x01, 0x00, 0x5E, 0, 0, 251},
		"239.129.2.3":          {0x01, 0x00, 0x5E, 1, 2, 3},
		"ff02::1:ff28:9c5a":    {0x33, 0x33, 0xFF, 0x28, 0x9C, 0x5A},
		"ff0e::ffff:239.1.2.3": {0x33, 0x33, 239, 1, 2, 3},
	} {
		if g := gid(s); MAC(&g) != want {
			t.Errorf("frames to %s go to %x, want %x", s, MAC(&g), want)
		}
	}
}

func TestCheck(t *testing.T) {
	c := &link.Caps{Name: "x", Local: []ib.GID{gid("10.0.0.1")}}
	for _, tt := range []struct {
		name   string
		err    error
		reason string
	}{
		{"join", CheckJoin(c, c.Local, gid("239.1.2.3"), false), ""},
		{"join again", CheckJoin(c, c.Local, gid("239.1.2.3"), true), "not joined yet"},
		{"join a host", CheckJoin(c, c.Local, gid("10.0.0.1"), false), "a multicast address"},
		{"join without an address", CheckJoin(c, c.Local, gid("ff05::1"), false), "IP version"},
		{"leave", CheckLeave(c, gid("239.1.2.3"), true), ""},
		{"leave again", CheckLeave(c, gid("239.1.2.3"), false), "was joined"},
	} {
		var refused *ib.AttrError
		switch {
		case tt.reason == "" && tt.err != nil:
			t.Errorf("%s: %v", tt.name, tt.err)
		case tt.reason != "" && (!errors.As(tt.err, &refused) || !errors.Is(tt.err, ib.ErrInvalid) ||
			!strings.Contains(tt.err.Error(), tt.reason)):
			t.Errorf("%s: %v, want ErrInvalid that says %q", tt.name, tt.err, tt.reason)
		}
	}
}

package rdmacm_test

import (
	"net/netip"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/rdmacm"
)

func gidTable(addrs ...string) (table []ib.GIDEntry) {
	for i, a := range addrs {
		table = append(table, ib.GIDEntry{GID: ib.GIDFromAddr(netip.MustParseAddr(a)), Index: i})
	}
	return table
}

// TestSource: which address a connection leaves from.
func TestSource(t *testing.T) {
	table := gidTable("fe80::1", "10.0.0.1", "10.0.128.1", "2001:db8:1::1", "2001:db8:2::1", "169.254.1.1", "10.0.0.9")
	for remote, want := range map[string]string{
		"10.0.0.9":         "10.0.0.9", // itself
		"10.0.0.2":         "10.0.0.1",
		"10.0.200.1":       "10.0.128.1",
		"192.0.2.1":        "169.254.1.1", // one bit in common; the kernel's routes are not asked
		"169.254.9.9":      "169.254.1.1",
		"2001:db8:2::7":    "2001:db8:2::1",
		"2001:db8:1:ff::7": "2001:db8:1::1",
		"fe80::9":          "fe80::1",
	} {
		if got, ok := ib.SourceGID(table, netip.MustParseAddr(remote)); !ok || got.GID.Addr().String() != want {
			t.Errorf("to %s from %v, want %s", remote, got.GID.Addr(), want)
		}
	}
	if got, ok := ib.SourceGID(gidTable("fe80::1", "10.0.0.1"), netip.MustParseAddr("2001:db8::1")); ok {
		t.Errorf("to a global address from %v, want none", got.GID.Addr())
	}
}

// TestChoose: of several addresses of a name the first that can be reached.
func TestChoose(t *testing.T) {
	names := []netip.Addr{netip.MustParseAddr("2001:db8::2"), netip.MustParseAddr("192.0.2.2"),
		netip.MustParseAddr("192.0.2.3")}
	for _, tt := range []struct {
		table         []ib.GIDEntry
		local         string
		remote, fails string
	}{
		{gidTable("192.0.2.1"), "", "192.0.2.2", ""},
		{gidTable("192.0.2.1", "2001:db8::1"), "", "2001:db8::2", ""},
		{gidTable("192.0.2.1", "2001:db8::1"), "192.0.2.1", "192.0.2.2", ""},
		{gidTable("192.0.2.1"), "192.0.2.9", "", "one of the device: 192.0.2.1"},
		{gidTable("192.0.2.1"), "2001:db8::9", "", "one of the device: 192.0.2.1"},
		{gidTable("fe80::1"), "", "", "of the device: fe80::1"},
		{nil, "", "", "family and scope"},
	} {
		var local netip.Addr
		if tt.local != "" {
			local = netip.MustParseAddr(tt.local)
		}
		remote, err := rdmacm.Choose(tt.table, names, local)
		if tt.fails != "" {
			if err == nil || !strings.Contains(err.Error(), tt.fails) {
				t.Errorf("%v from %s: %v, want it to say %q", tt.table, tt.local, err, tt.fails)
			}
		} else if err != nil || remote.String() != tt.remote {
			t.Errorf("%v from %s: %v, %v; want %s", tt.table, tt.local, remote, err, tt.remote)
		}
	}
}

// TestSourceProperty: no other address of the table would be nearer, bit by bit.
func TestSourceProperty(t *testing.T) {
	addr := rapid.Custom(func(t *rapid.T) netip.Addr {
		b := [16]byte{0x20, 0x01}
		copy(b[14:], rapid.SliceOfN(rapid.Byte(), 2, 2).Draw(t, "host"))
		return netip.AddrFrom16(b)
	})
	rapid.Check(t, func(t *rapid.T) {
		remote := addr.Draw(t, "remote")
		var table []ib.GIDEntry
		for _, a := range rapid.SliceOfN(addr, 1, 8).Draw(t, "table") {
			table = append(table, ib.GIDEntry{GID: ib.GIDFromAddr(a)})
		}
		best, ok := ib.SourceGID(table, remote)
		if !ok {
			t.Fatal("none found")
		}
		for _, e := range table {
			for bits := range 129 {
				p := netip.PrefixFrom(remote, bits).Masked()
				if p.Contains(e.GID.Addr()) && !p.Contains(best.GID.Addr()) {
					t.Fatalf("to %v from %v, want one of the %[4]d bits that %[3]v shares", remote, best.GID.Addr(),
						e.GID.Addr(), bits)
				}
			}
		}
	})
}

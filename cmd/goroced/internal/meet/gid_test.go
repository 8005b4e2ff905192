package meet

import (
	"net/netip"
	"testing"

	"github.com/goroce/goroce/ib"
)

// TestGID: the address of the TCP connection, or one of its version.
func TestGID(t *testing.T) {
	var table []ib.GIDEntry
	for i, a := range []string{"fe80::1", "192.0.2.1", "198.51.100.1", "2001:db8::1"} {
		table = append(table, ib.GIDEntry{GID: ib.GIDFromAddr(netip.MustParseAddr(a)), Index: i})
	}
	for local, want := range map[string]int{
		"192.0.2.1": 1, "198.51.100.1": 2, "2001:db8::1": 3, "fe80::1": 0,
		"127.0.0.1": 1, "::1": 0,
	} {
		if got := GID(table, netip.MustParseAddr(local)).Index; got != want {
			t.Errorf("TCP from %s: GID %d, want %d", local, got, want)
		}
	}
	if got := GID(table[1:2], netip.MustParseAddr("::1")).Index; got != 1 {
		t.Errorf("no address of the version: GID %d, want the only one", got)
	}
}

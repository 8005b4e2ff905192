//go:build linux

package linktest

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/goroce/goroce/roce/link"
	"github.com/goroce/goroce/roce/link/port"
)

// Opener opens a link of some kind on addresses.
type Opener func([]netip.Addr) (link.Link, error)

// OpenIn opens a link in a namespace. The test closes it at its end.
func OpenIn(t testing.TB, ns *Namespace, open Opener, addrs ...netip.Addr) (l link.Link) {
	t.Helper()
	err := ns.Do(func() (err error) {
		l, err = open(addrs)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// Veth is a contract test over a new veth pair, with a link at each end.
type Veth struct {
	MTU  int
	IPv6 bool
	A, B Opener
}

// Run runs the contract tests, and those of addresses that come and go.
func (v Veth) Run(t *testing.T) {
	na, nb := NewVeth(t, v.MTU)
	pair := func(t testing.TB) (link.Link, link.Link) {
		aAddr, bAddr := na.Addr4, nb.Addr4
		if v.IPv6 {
			aAddr, bAddr = na.Addr6, nb.Addr6
		}
		a, b := OpenIn(t, na, v.A, aAddr), OpenIn(t, nb, v.B, bAddr)
		Meet(t, a, b)
		return Fresh(a), Fresh(b)
	}
	Run(t, pair)
	Addresses(t, pair, na.Spare(t, v.IPv6))
}

// WrongAddresses checks that links that need an Ethernet interface refuse addresses that are none of it, or whose
// port another link has taken, and that such an attempt leaves nothing behind. taker opens that other link.
func WrongAddresses(t *testing.T, open, taker Opener) {
	na, _ := NewVeth(t, 1500)
	na.Command(t, "ip", "link", "add", "other", "type", "veth", "peer", "name", "other2")
	na.Command(t, "ip", "addr", "add", "10.98.0.1/24", "dev", "other")
	na.Command(t, "ip", "tuntap", "add", "tun7", "mode", "tun")
	na.Command(t, "ip", "addr", "add", "10.97.0.1/24", "dev", "tun7")
	OpenIn(t, na, taker, na.Addr6)
	for _, tt := range []struct {
		name  string
		addrs []netip.Addr
		want  string
		is    error
	}{
		{"none", nil, "no address given", nil},
		{"foreign", []netip.Addr{netip.MustParseAddr("203.0.113.9")}, "no network interface holds", nil},
		{"two interfaces", []netip.Addr{na.Addr4, netip.MustParseAddr("10.98.0.1")}, "must be on one interface", nil},
		{"no Ethernet", []netip.Addr{netip.MustParseAddr("10.97.0.1")}, "no Ethernet interface", nil},
		{"port taken", []netip.Addr{na.Addr4, na.Addr6}, "taken", port.ErrTaken},
	} {
		err := na.Do(func() error {
			l, err := open(tt.addrs)
			if err == nil {
				_ = l.Close()
			}
			return err
		})
		if err == nil || !strings.Contains(err.Error(), tt.want) || tt.is != nil && !errors.Is(err, tt.is) {
			t.Errorf("%s: %v, want %q", tt.name, err, tt.want)
		}
	}
	OpenIn(t, na, open, na.Addr4)
}

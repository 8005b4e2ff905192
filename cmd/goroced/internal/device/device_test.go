package device

import (
	"context"
	"errors"
	"io"
	"net/netip"
	"strings"
	"testing"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/host"
	"github.com/goroce/goroce/roce/link/wrap"
	"github.com/goroce/goroce/tests/linktest"
)

func TestSoft(t *testing.T) {
	for _, name := range []string{"", "soft"} {
		addr := linktest.Loopback()
		dev, err := Open(name, host.Options{Addrs: []netip.Addr{addr}})
		if err != nil {
			t.Fatalf("device %q: %v", name, err)
		}
		gids, err := dev.GIDs(1)
		if err != nil || len(gids) != 1 || gids[0].GID.Addr() != addr {
			t.Errorf("device %q has GIDs %v, %v, want %v", name, gids, err, addr)
		}
		if err := dev.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestInterface: a name that devinfo -l lists is that of a network interface.
func TestInterface(t *testing.T) {
	if _, err := Open("goroce_nosuch0", host.Options{}); !errors.Is(err, host.ErrNoInterface) ||
		!strings.Contains(err.Error(), "nosuch0") {
		t.Errorf("error %v, want %v", err, host.ErrNoInterface)
	}
}

// TestRNIC: the name goes to package rnic, which refuses what is not there or, where
// it is not built in, everything.
func TestRNIC(t *testing.T) {
	if dev, err := Open("rnic:nosuch0", host.Options{Link: "auto"}); err == nil || dev != nil {
		t.Errorf("device %v, error %v; want none, and an error", dev, err)
	}
}

// TestRefused: the error says what is allowed, and no device comes with it.
func TestRefused(t *testing.T) {
	addrs := []netip.Addr{linktest.Loopback()}
	for _, c := range []struct {
		name string
		o    host.Options
		want string
	}{
		{"nosuch0", host.Options{}, "nosuch0"},
		{"rnic:", host.Options{}, "rnic:NAME"},
		{"rnic", host.Options{}, "rnic:NAME"},
		{"goroce_", host.Options{}, "goroce_IF"},
		{"Soft", host.Options{}, "soft"},
		{"goroce_lo", host.Options{Addrs: addrs}, "excluded"},
		{"goroce_lo", host.Options{NetIf: "lo"}, "excluded"},
		{"rnic:rxe0", host.Options{Link: "udp"}, "--link"},
		{"rnic:rxe0", host.Options{Addrs: addrs}, "--addr"},
		{"rnic:rxe0", host.Options{NetIf: "lo"}, "--netif"},
		{"rnic:rxe0", host.Options{Shards: 2}, "--shards"},
		{"rnic:rxe0", host.Options{Fault: wrap.FaultConfig{Drop: 0.1}}, "--drop"},
		{"rnic:rxe0", host.Options{Pcap: io.Discard}, "--pcap"},
	} {
		var attr *ib.AttrError
		dev, err := Open(c.name, c.o)
		if dev != nil || !errors.As(err, &attr) || !errors.Is(err, ib.ErrInvalid) || attr.Allowed != Names ||
			!strings.Contains(err.Error(), c.want) {
			t.Errorf("device %q: %v, error %v, want one that says %q and what is allowed", c.name, dev, err, c.want)
		}
	}
}

// TestRNICs: what is listed has a name that Open passes on.
func TestRNICs(t *testing.T) {
	names, err := RNICs()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if !strings.HasPrefix(name, "rnic:") {
			t.Errorf("an RNIC is listed as %q, want rnic: in front", name)
		}
	}
}

// TestToward: the lookup of a name ends with the context.
func TestToward(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	loopback := netip.MustParseAddr("127.0.0.1")
	if a := Toward(ctx, "127.0.0.1"); a != loopback {
		t.Errorf("the address toward loopback is %v, want %v", a, loopback)
	}
	cancel()
	if a := Toward(ctx, "127.0.0.1"); a.IsValid() {
		t.Errorf("an address after the end of the context: %v, want none", a)
	}
}

package device_test

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/internal/device"
)

// TestCMSharedPorts: IDs whose destinations differ may have one source port, as those of Linux's cma_port_is_unique: so
// there are as many connections to each destination as there are ports, and an ID without a destination gets no port
// that another ID has.
func TestCMSharedPorts(t *testing.T) {
	w := newWorld(t, 1, 1, plain)
	c := w.asTenant(w.a, device.CMLimits{IDs: 1 << 20}, nil)
	const ports = 61000 - 32768
	peer := gidB.Addr()
	resolve := func(a netip.Addr, port uint16) (ib.CMID, error) {
		id := c.id()
		return id, id.ResolveAddr(netip.AddrPort{}, netip.AddrPortFrom(a, port), 0)
	}
	var first ib.CMID
	for i := range ports {
		id, err := resolve(peer, 7471)
		if err != nil {
			t.Fatalf("ID %d of %d to one destination: %v", i+1, ports, err)
		}
		if i == 0 {
			first = id
		}
	}
	if _, err := resolve(peer, 7471); !errors.Is(err, ib.ErrNoPort) {
		t.Errorf("one ID more to the destination: %v, want ErrNoPort", err)
	}
	if err := c.id().Bind(netip.AddrPortFrom(gidA.Addr(), 0)); !errors.Is(err, ib.ErrNoPort) {
		t.Errorf("an ID without a destination: %v, want ErrNoPort", err)
	}
	for name, other := range map[string]netip.AddrPort{
		"another port": netip.AddrPortFrom(peer, 7472), "another address": netip.AddrPortFrom(gidA.Addr(), 7471),
	} {
		id, err := resolve(other.Addr(), other.Port())
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		must(t, id.Close())
	}
	// A port that is free again is found, by an ID without a destination, too; which then has it alone.
	must(t, first.Close())
	alone := c.id()
	must(t, alone.Bind(netip.AddrPortFrom(gidA.Addr(), 0)))
	attr, err := alone.Query()
	must(t, err)
	for range 100 {
		id, err := resolve(peer, 7473)
		must(t, err)
		if got, err := id.Query(); err != nil || got.Local.Port() == attr.Local.Port() {
			t.Fatalf("an ID without a destination has port %v, %v; want another than %d", got.Local, err,
				attr.Local.Port())
		}
	}
}

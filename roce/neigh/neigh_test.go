package neigh_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/neigh"
	"github.com/goroce/goroce/tests/linktest"
	"github.com/goroce/goroce/tests/require"
)

const patience = 10 * time.Second

func TestHoldingLoopback(t *testing.T) {
	n, err := neigh.Holding(netip.MustParseAddr("127.9.9.9"))
	if err != nil {
		t.Fatal(err)
	}
	if n.Name != "lo" || !n.Loopback || !n.NoARP || !n.Ethernet || n.MTU < 1500 {
		t.Errorf("loopback is %+v, want lo of MTU 1500 or more, without ARP", n)
	}
	if _, err := neigh.Holding(netip.MustParseAddr("203.0.113.99")); !errors.Is(err, neigh.ErrNoInterface) {
		t.Errorf("foreign address: %v, want ErrNoInterface", err)
	}
}

func TestHolding(t *testing.T) {
	a, _ := linktest.NewVeth(t, 4200)
	err := a.Do(func() error {
		for _, addr := range []netip.Addr{a.Addr4, a.Addr6, a.Addr6.WithZone(a.IfName)} {
			n, err := neigh.Holding(addr)
			if err != nil {
				return err
			}
			if n.Name != a.IfName || n.MTU != 4200 || n.MAC != a.MAC || !n.Up || !n.Ethernet || n.NoARP || n.Loopback {
				t.Errorf("%v is held by %+v, want %s, up, MTU 4200, %v", addr, n, a.IfName, a.MAC)
			}
		}
		if _, err := neigh.Holding(a.Addr6.WithZone("lo")); !errors.Is(err, neigh.ErrNoInterface) {
			t.Errorf("with another zone: %v, want ErrNoInterface", err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestRouteTo(t *testing.T) {
	a, b := linktest.NewVeth(t, 1500)
	a.Command(t, "ip", "route", "add", "10.50.0.0/16", "via", b.Addr4.String(), "mtu", "1400")
	a.Command(t, "ip", "route", "add", "10.51.0.0/16", "via", "inet6", b.Addr6.String())
	tests := []struct {
		dst, src, gateway netip.Addr
		mtu               int
	}{
		{dst: b.Addr4, src: a.Addr4, mtu: 1500},
		{dst: b.Addr6, src: a.Addr6, mtu: 1500},
		{dst: netip.MustParseAddr("10.50.1.1"), src: a.Addr4, gateway: b.Addr4, mtu: 1400},
		{dst: netip.MustParseAddr("10.51.1.1"), src: a.Addr4, gateway: b.Addr6, mtu: 1500},
	}
	err := a.Do(func() error {
		for _, tt := range tests {
			r, err := neigh.RouteTo(tt.dst)
			if err != nil {
				return err
			}
			if r.Src != tt.src || r.Gateway != tt.gateway || r.NetIf != a.IfName || r.Index == 0 || r.MTU != tt.mtu {
				t.Errorf("route to %v is %+v, want from %v by gateway %v, MTU %d", tt.dst, r, tt.src, tt.gateway,
					tt.mtu)
			}
		}
		if r, err := neigh.RouteTo(netip.MustParseAddr("10.60.0.1")); err == nil {
			t.Errorf("route to nowhere: %+v, want an error", r)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func newTable(t *testing.T, a *linktest.Namespace) *neigh.Table {
	t.Helper()
	var table *neigh.Table
	err := a.Do(func() error {
		n, err := neigh.Holding(a.Addr4)
		if err != nil {
			return err
		}
		table, err = neigh.NewTable(n, nil)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(table.Close)
	return table
}

// resolve fails unless dst resolves to mac.
func resolve(t *testing.T, table *neigh.Table, dst netip.Addr, mac [6]byte) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := table.Resolve(ctx, dst); err != nil {
		t.Fatal(err)
	}
	gid := ib.GIDFromAddr(dst)
	if got, ok := table.Lookup(&gid); !ok || got != mac {
		t.Errorf("%v resolves to %x, %v; want %x", dst, got, ok, mac)
	}
}

func TestTable(t *testing.T) {
	a, b := linktest.NewVeth(t, 1500)
	a.Command(t, "ip", "route", "add", "10.50.0.0/16", "via", b.Addr4.String())
	table := newTable(t, a)
	gid := ib.GIDFromAddr(b.Addr4)
	if _, ok := table.Lookup(&gid); ok {
		t.Error("an address is known before it was asked for")
	}
	resolve(t, table, b.Addr4, b.MAC)
	resolve(t, table, b.Addr6, b.MAC)
	resolve(t, table, netip.MustParseAddr("10.50.3.4"), b.MAC)
	if n := testing.AllocsPerRun(100, func() { table.Lookup(&gid) }); n != 0 {
		t.Errorf("Lookup allocates %v times, want never", n)
	}
}

// The kernel learns of a new MAC address from a gratuitous ARP, and tells.
func TestTableFollowsChange(t *testing.T) {
	a, b := linktest.NewVeth(t, 1500)
	table := newTable(t, a)
	resolve(t, table, b.Addr4, b.MAC)
	moved := [6]byte{2, 0, 0, 0, 0, 9}
	a.Command(t, "ip", "neigh", "replace", b.Addr4.String(), "lladdr", "02:00:00:00:00:09", "dev", a.IfName)
	gid := ib.GIDFromAddr(b.Addr4)
	require.Until(t, "the new MAC address", func() bool {
		mac, ok := table.Lookup(&gid)
		return ok && mac == moved
	})
	// Forgotten by the kernel, while in use: it is asked again.
	a.Command(t, "ip", "neigh", "del", b.Addr4.String(), "dev", a.IfName)
	require.Until(t, "the true MAC address", func() bool {
		mac, ok := table.Lookup(&gid)
		return ok && mac == b.MAC
	})
}

// Without CAP_NET_ADMIN the kernel is made to resolve by a packet; without
// CAP_SYS_ADMIN no thread may move to another namespace, not even to its own.
// Capabilities belong to threads, and the table has goroutines, so the test is a
// process.
func TestTableUnprivileged(t *testing.T) {
	if os.Getenv("GOROCE_TEST_RESOLVE") != "" {
		resolveUnprivileged(t)
		return
	}
	a, b := linktest.NewVeth(t, 1500)
	cmd := exec.Command(os.Args[0], "-test.run=^TestTableUnprivileged$")
	cmd.Env = append(os.Environ(), fmt.Sprintf("GOROCE_TEST_RESOLVE=%v %v %v %x", a.Addr4, b.Addr4, b.Addr6, b.MAC))
	var out []byte
	err := a.Do(func() (err error) {
		// Root gets at exec what is in the bounding set.
		for _, c := range []uintptr{unix.CAP_NET_ADMIN, unix.CAP_SYS_ADMIN} {
			if err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0); err != nil {
				return err
			}
		}
		out, err = cmd.CombinedOutput()
		return err
	})
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

// resolveUnprivileged is what the process does.
func resolveUnprivileged(t *testing.T) {
	var addr [3]string // own, and two of the peer
	var mac []byte
	if _, err := fmt.Sscanf(os.Getenv("GOROCE_TEST_RESOLVE"), "%s %s %s %x", &addr[0], &addr[1], &addr[2],
		&mac); err != nil {
		t.Fatal(err)
	}
	addr4, addr6 := netip.MustParseAddr(addr[1]), netip.MustParseAddr(addr[2])
	n, err := neigh.Holding(netip.MustParseAddr(addr[0]))
	if err != nil {
		t.Fatal(err)
	}
	use := netlink.Neigh{LinkIndex: n.Index, IP: addr4.AsSlice(), Flags: netlink.NTF_USE}
	if err := netlink.NeighSet(&use); !errors.Is(err, unix.EPERM) {
		t.Fatalf("NTF_USE: %v, want EPERM: the process has CAP_NET_ADMIN", err)
	}
	here := neigh.CurrentNamespace()
	defer here.Close()
	if err := here.Do(func() error { return nil }); err != nil {
		t.Errorf("in one's own namespace: %v", err)
	}
	table, err := neigh.NewTable(n, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer table.Close()
	resolve(t, table, addr4, [6]byte(mac))
	resolve(t, table, addr6, [6]byte(mac))
}

func TestResolveNobody(t *testing.T) {
	a, _ := linktest.NewVeth(t, 1500)
	table := newTable(t, a)
	for _, dst := range []string{"10.99.0.77", "10.60.0.1"} { // nobody there, no route
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		if err := table.Resolve(ctx, netip.MustParseAddr(dst)); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: %v, want DeadlineExceeded", dst, err)
		}
	}
	table.Close()
	if err := table.Resolve(t.Context(), netip.MustParseAddr("10.99.0.78")); !errors.Is(err, ib.ErrClosed) {
		t.Errorf("after Close: %v, want ErrClosed", err)
	}
}

package host

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce"
	"github.com/goroce/goroce/roce/link/port"
	"github.com/goroce/goroce/tests/linktest"
	"github.com/goroce/goroce/tests/require"
)

var addrsEqual = cmp.Comparer(func(a, b netip.Addr) bool { return a == b })

// table returns the GID table: indexes by address.
func table(t testing.TB, dev ib.Device) map[netip.Addr]int {
	t.Helper()
	rows, err := dev.GIDs(1)
	if err != nil {
		t.Fatal(err)
	}
	m := map[netip.Addr]int{}
	for _, e := range rows {
		m[e.GID.Addr()] = e.Index
	}
	return m
}

// awaitAddr takes events until the device has an address, or has it no more.
func awaitAddr(t *testing.T, dev ib.Device, a netip.Addr, want bool) {
	t.Helper()
	for {
		wantEvent(t, dev, ib.EventGIDChange)
		if _, have := table(t, dev)[a]; have == want {
			return
		}
	}
}

// awaitFree waits until no device holds the UDP port of an address: a device closes its socket after its table has lost
// the address.
func awaitFree(t *testing.T, ns *linktest.Namespace, a netip.Addr) {
	t.Helper()
	require.Until(t, fmt.Sprintf("the port of %v is free", a), func() bool {
		err := ns.Do(func() error {
			dev, err := Open(Options{Link: "udp", Addrs: []netip.Addr{a}})
			if err != nil {
				return err
			}
			return dev.Close()
		})
		if err != nil && !errors.Is(err, port.ErrTaken) {
			t.Fatal(err)
		}
		return err == nil
	})
}

// patient is the code of a local ACK timeout of 0.54 s. The eight tries of a request then last longer
// than an address is missing in these tests.
const patient = 17

// over connects two new QPs from one address to another.
func over(t *testing.T, a, b roce.Device, from, to netip.Addr) (x, y *side) {
	t.Helper()
	x, y = newSide(t, a), newSide(t, b)
	x.connectTo(t, y, ib.AHAttr{DGID: ib.GIDFromAddr(to), SGIDIndex: table(t, a)[from]}, patient)
	y.connectTo(t, x, ib.AHAttr{DGID: ib.GIDFromAddr(from), SGIDIndex: table(t, b)[to]}, patient)
	return x, y
}

// exchange writes both ways.
func exchange(t *testing.T, x, y *side) {
	t.Helper()
	for _, way := range [][2]*side{{x, y}, {y, x}} {
		clear(way[1].buf)
		if err := write(t, way[0], way[1]); err != nil {
			t.Error(err)
		}
	}
}

// kinds are the links, of which XDP is not possible everywhere.
func kinds(t *testing.T, test func(t *testing.T, o Options)) {
	for _, o := range []Options{{Link: "udp"}, {Link: "udp", Shards: 2}, {Link: "rawsock"}, {Link: "afxdp"}} {
		name := o.Link
		if o.Shards > 1 {
			name += " of two shards"
		}
		t.Run(name, func(t *testing.T) { test(t, o) })
	}
}

// TestAddressChanges: a device has the addresses of its interface, as they come and go.
func TestAddressChanges(t *testing.T) {
	require.Root(t)
	kinds(t, func(t *testing.T, o Options) {
		nsA, nsB := linktest.NewVeth(t, 1500)
		a, b := openIn(t, nsA, o), openIn(t, nsB, Options{Link: "udp"})
		before := table(t, a)
		for _, c := range []struct{ addr, net string }{{"10.99.0.50", "/24"}, {"fd99::50", "/64"}} {
			addr := netip.MustParseAddr(c.addr)
			peer := nsB.Addr4
			if addr.Is6() {
				peer = nsB.Addr6
			}
			// It comes; what was there stays.
			nsA.Command(t, "ip", "addr", "add", c.addr+c.net, "dev", nsA.IfName)
			awaitAddr(t, a, addr, true)
			rows := table(t, a)
			index := rows[addr]
			x, y := over(t, a, b, addr, peer)
			exchange(t, x, y)
			// It goes: the QP is left, and cannot send.
			nsA.Command(t, "ip", "addr", "del", c.addr+c.net, "dev", nsA.IfName)
			awaitAddr(t, a, addr, false)
			delete(rows, addr)
			if diff := cmp.Diff(rows, table(t, a), addrsEqual); diff != "" {
				t.Errorf("without %v the table is (-want +got):\n%s", addr, diff)
			}
			done := make(chan error, 1)
			clear(y.buf)
			go func() { done <- write(t, x, y) }()
			// It is back in time: at its index, and the QP goes on.
			nsA.Command(t, "ip", "addr", "add", c.addr+c.net, "dev", nsA.IfName)
			awaitAddr(t, a, addr, true)
			if i := table(t, a)[addr]; i != index {
				t.Errorf("%v is back at index %d, want %d as before", addr, i, index)
			}
			if err := <-done; err != nil {
				t.Errorf("WRITE while %v was away: %v", addr, err)
			}
			exchange(t, x, y)
		}
		for addr, index := range before {
			if i, ok := table(t, a)[addr]; !ok || i != index {
				t.Errorf("%v is at index %d (%v), want %d as before", addr, i, ok, index)
			}
		}
	})
}

// TestInterfaceDownUp: after the interface was down the device goes on, with the
// addresses that Linux has left it; IPv6 addresses come back as somebody gives them.
func TestInterfaceDownUp(t *testing.T) {
	require.Root(t)
	kinds(t, func(t *testing.T, o Options) {
		nsA, nsB := linktest.NewVeth(t, 1500)
		a, b := openIn(t, nsA, o), openIn(t, nsB, Options{Link: "udp"})
		before := table(t, a)
		x4, y4 := over(t, a, b, nsA.Addr4, nsB.Addr4)
		x6, y6 := over(t, a, b, nsA.Addr6, nsB.Addr6)
		exchange(t, x4, y4)
		exchange(t, x6, y6)
		nsA.Command(t, "ip", "link", "set", nsA.IfName, "down")
		wantPort(t, a, ib.EventPortErr, ib.PortDown)
		if _, have := table(t, a)[nsA.Addr6]; have {
			t.Errorf("%v is still in the table", nsA.Addr6)
		}
		nsA.Command(t, "ip", "link", "set", nsA.IfName, "up")
		wantPort(t, a, ib.EventPortActive, ib.PortActive)
		nsA.Command(t, "ip", "addr", "add", nsA.Addr6.String()+"/64", "dev", nsA.IfName, "nodad")
		require.Until(t, fmt.Sprintf("the table is %v again", before), func() bool {
			return cmp.Equal(before, table(t, a), addrsEqual)
		})
		exchange(t, x4, y4)
		exchange(t, x6, y6)
	})
}

// TestOnlyGivenAddresses: a device that was opened on addresses has no others, and these
// while they are there.
func TestOnlyGivenAddresses(t *testing.T) {
	nsA, nsB := linktest.NewVeth(t, 1500)
	nsA.Command(t, "ip", "addr", "add", "10.99.0.60/24", "dev", nsA.IfName)
	mine := netip.MustParseAddr("10.99.0.60")
	a := openIn(t, nsA, Options{Link: "udp", Addrs: []netip.Addr{mine, nsA.Addr4}})
	b := openIn(t, nsB, Options{Link: "udp"})
	nsA.Command(t, "ip", "addr", "add", "10.99.0.61/24", "dev", nsA.IfName)
	nsA.Command(t, "ip", "addr", "del", "10.99.0.60/24", "dev", nsA.IfName)
	awaitAddr(t, a, mine, false)
	if rows := table(t, a); len(rows) != 1 || rows[nsA.Addr4] != 1 {
		t.Errorf("the table is %v, want %v at 1", rows, nsA.Addr4)
	}
	nsA.Command(t, "ip", "addr", "add", "10.99.0.60/24", "dev", nsA.IfName)
	awaitAddr(t, a, mine, true)
	if rows := table(t, a); len(rows) != 2 || rows[mine] != 0 {
		t.Errorf("the table is %v, want %v at 0", rows, mine)
	}
	x, y := over(t, a, b, mine, nsB.Addr4)
	exchange(t, x, y)
}

// TestTakenAddress: an address whose port another program has is the device's once that
// has ended and something happens on the network.
func TestTakenAddress(t *testing.T) {
	nsA, _ := linktest.NewVeth(t, 1500)
	a := openIn(t, nsA, Options{Link: "udp", Addrs: []netip.Addr{nsA.Addr4, nsA.Addr6}})
	nsA.Command(t, "ip", "addr", "del", nsA.Addr4.String()+"/24", "dev", nsA.IfName)
	awaitAddr(t, a, nsA.Addr4, false)
	nsA.Command(t, "ip", "addr", "add", nsA.Addr4.String()+"/24", "dev", "lo")
	awaitFree(t, nsA, nsA.Addr4)
	other := openIn(t, nsA, Options{Link: "udp", Addrs: []netip.Addr{nsA.Addr4}})
	nsA.Command(t, "ip", "addr", "add", nsA.Addr4.String()+"/24", "dev", nsA.IfName)
	nsA.Command(t, "ip", "link", "set", nsA.IfName, "mtu", "1400")
	awaitMTU(t, a, ib.MTU1024) // by then the address was tried
	if _, have := table(t, a)[nsA.Addr4]; have {
		t.Fatalf("%v is the device's while another one has it", nsA.Addr4)
	}
	if err := other.Close(); err != nil {
		t.Fatal(err)
	}
	nsA.Command(t, "ip", "link", "set", nsA.IfName, "mtu", "1300")
	awaitAddr(t, a, nsA.Addr4, true)
}

// awaitMTU waits until the port has an active MTU: there is no event for it.
func awaitMTU(t *testing.T, dev ib.Device, want ib.MTU) {
	t.Helper()
	require.Until(t, fmt.Sprintf("the active MTU is %d", want), func() bool {
		p, err := dev.QueryPort(1)
		if err != nil {
			t.Fatal(err)
		}
		return p.ActiveMTU == want
	})
}

// TestMTUChanges: the active MTU follows the interface's, up to the first.
func TestMTUChanges(t *testing.T) {
	nsA, nsB := linktest.NewVeth(t, 2200)
	a, b := openIn(t, nsA, Options{Link: "udp"}), openIn(t, nsB, Options{Link: "udp"})
	awaitMTU(t, a, ib.MTU2048)
	for _, c := range []struct {
		bytes string
		want  ib.MTU
	}{{"1500", ib.MTU1024}, {"9000", ib.MTU2048}, {"1000", ib.MTU512}, {"1400", ib.MTU1024}} {
		nsA.Command(t, "ip", "link", "set", nsA.IfName, "mtu", c.bytes)
		awaitMTU(t, a, c.want)
	}
	x, y := over(t, a, b, nsA.Addr4, nsB.Addr4)
	exchange(t, x, y)
}

// TestAddressTaken: an address whose port another program has is had as soon as that has
// let it go and something happens to any address; why not before is told.
func TestAddressTaken(t *testing.T) {
	require.Root(t)
	ns, _ := linktest.NewVeth(t, 1500)
	const addr = "10.99.0.50"
	var held net.PacketConn
	if err := ns.Do(func() (err error) {
		free := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error { // the address is not there yet
			return c.Control(func(fd uintptr) { _ = unix.SetsockoptInt(int(fd), unix.SOL_IP, unix.IP_FREEBIND, 1) })
		}}
		held, err = free.ListenPacket(t.Context(), "udp4", addr+":4791")
		return err
	}); err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	told := make(chan error, 16)
	dev := openIn(t, ns, Options{Link: "udp", OnAddress: func(err error) { told <- err }})
	ns.Command(t, "ip", "addr", "add", addr+"/24", "dev", ns.IfName)
	if err := <-told; !strings.Contains(err.Error(), addr) {
		t.Errorf("told %v, want which address it is", err)
	}
	if _, have := table(t, dev)[netip.MustParseAddr(addr)]; have {
		t.Error("the device has an address whose port is taken")
	}
	_ = held.Close()
	ns.Command(t, "ip", "addr", "add", "10.99.0.51/24", "dev", ns.IfName)
	awaitAddr(t, dev, netip.MustParseAddr(addr), true)
}

// TestIndexes: the link-local address has index 0, as in the kernel's table, also if the device is opened while its
// duplicate address detection is under way; and the node GUID is that of the MAC address, whatever addresses there are.
func TestIndexes(t *testing.T) {
	t.Parallel()
	ns, _ := linktest.NewVeth(t, 1500)
	first := func() (index int, guid uint64) {
		t.Helper()
		var dev roce.Device
		err := ns.Do(func() (err error) {
			dev, err = Open(Options{Link: "udp", NetIf: ns.IfName})
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		defer dev.Close()
		for a, i := range table(t, dev) {
			if a.IsLinkLocalUnicast() {
				return i, dev.Attr().NodeGUID
			}
		}
		return -1, dev.Attr().NodeGUID
	}
	index, guid := first()
	ns.Command(t, "sysctl", "-w", "net.ipv6.conf."+ns.IfName+".accept_dad=1")
	ns.Command(t, "sysctl", "-w", "net.ipv6.conf."+ns.IfName+".dad_transmits=1")
	ns.Command(t, "ip", "link", "set", ns.IfName, "down")
	ns.Command(t, "ip", "link", "set", ns.IfName, "up")
	ns.Command(t, "ip", "address", "add", "10.97.0.1/24", "dev", ns.IfName)
	again, guidAgain := first()
	if index != 0 || again != 0 {
		t.Errorf("got index %d, and %d while its detection is under way, want 0", index, again)
	}
	if guid == 0 || guid != guidAgain || guid>>24&0xFFFF != 0xFFFE {
		t.Errorf("got node GUIDs %#x and %#x, want that of the MAC address", guid, guidAgain)
	}
}

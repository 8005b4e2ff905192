package udp_test

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/link"
	"github.com/goroce/goroce/roce/link/port"
	"github.com/goroce/goroce/roce/link/udp"
	"github.com/goroce/goroce/tests/linktest"
	"github.com/goroce/goroce/tests/require"
)

func open(t testing.TB, o udp.Options, addrs ...netip.Addr) link.Link {
	t.Helper()
	l, err := udp.Open(addrs, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func openIn(t testing.TB, ns *linktest.Namespace, o udp.Options, addrs ...netip.Addr) (l link.Link) {
	t.Helper()
	err := ns.Do(func() (err error) {
		l, err = udp.Open(addrs, o)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// Two links in one process, as the demonstration has them.
func TestContractLoopback(t *testing.T) {
	for _, tt := range []struct {
		name string
		o    udp.Options
	}{{"Offload", udp.Options{Offload: udp.OffloadOn}}, {"FrameByFrame", udp.Options{Offload: udp.OffloadOff}}} {
		t.Run(tt.name, func(t *testing.T) {
			pair := func(t testing.TB) (a, b link.Link) {
				return open(t, tt.o, linktest.Loopback()), open(t, tt.o, linktest.Loopback())
			}
			linktest.Run(t, pair)
			linktest.Addresses(t, pair, ib.GIDFromAddr(linktest.Loopback()))
		})
	}
}

func TestContractVeth(t *testing.T) {
	for _, tt := range []struct {
		name string
		mtu  int
		v6   bool
		o    udp.Options
	}{
		{"IPv4", 1500, false, udp.Options{}},
		{"IPv4Jumbo", 9000, false, udp.Options{}},
		{"IPv4FrameByFrame", 1500, false, udp.Options{Offload: udp.OffloadOff}},
		{"IPv6", 1500, true, udp.Options{}},
		{"IPv6FrameByFrame", 1500, true, udp.Options{Offload: udp.OffloadOff}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			na, nb := linktest.NewVeth(t, tt.mtu)
			pair := func(t testing.TB) (a, b link.Link) {
				if tt.v6 {
					return openIn(t, na, tt.o, na.Addr6), openIn(t, nb, tt.o, nb.Addr6)
				}
				return openIn(t, na, tt.o, na.Addr4), openIn(t, nb, tt.o, nb.Addr4)
			}
			linktest.Run(t, pair)
			linktest.Addresses(t, pair, na.Spare(t, tt.v6))
		})
	}
}

// One link over addresses of both IP versions, to itself and to another.
func TestSeveralAddresses(t *testing.T) {
	na, nb := linktest.NewVeth(t, 1500)
	a := openIn(t, na, udp.Options{}, na.Addr4, na.Addr6)
	b := openIn(t, nb, udp.Options{}, nb.Addr4, nb.Addr6)
	var next uint32
	var out []link.Run
	for i := range 20 {
		r := linktest.NewRun(a, b, &next, 2, 64, 0)
		r.Src, r.Dst = a.Caps().Local[i%2], b.Caps().Local[i%2]
		out = append(out, r)
	}
	linktest.SendAll(t, a, out)
	seen := map[[2]any]int{}
	for _, r := range linktest.Collect(t, b, 40) {
		seen[[2]any{r.Src, r.Dst}] += r.Frames()
	}
	for i := range 2 {
		if n := seen[[2]any{a.Caps().Local[i], b.Caps().Local[i]}]; n != 20 {
			t.Errorf("%d frames from %v, want 20", n, a.Caps().Local[i])
		}
	}
	r := linktest.NewRun(a, a, &next, 1, 64, 0)
	linktest.SendAll(t, a, []link.Run{r})
	linktest.Collect(t, a, 1)
}

// Loopback has one IPv6 address.
func TestLoopback6(t *testing.T) {
	na, _ := linktest.NewVeth(t, 1500)
	l := openIn(t, na, udp.Options{}, netip.IPv6Loopback())
	if c := l.Caps(); c.NetIf != "lo" || c.MTU != 65536 || c.ID != link.IDIndex {
		t.Errorf("capabilities %+v, want lo, MTU 65536, ID %v", c, link.IDIndex)
	}
	var next uint32
	r := linktest.NewRun(l, l, &next, 15, 4128, 16)
	linktest.SendAll(t, l, []link.Run{r})
	if n := len(linktest.Frames(linktest.Collect(t, l, 16)...)); n != 16 {
		t.Errorf("%d frames arrived, want 16", n)
	}
}

func TestCaps(t *testing.T) {
	na, _ := linktest.NewVeth(t, 4200)
	c := openIn(t, na, udp.Options{}, na.Addr4).Caps()
	if c.Name != "udp" || c.NetIf != na.IfName || c.MTU != 4200 || c.ID != link.IDIndex || c.FixedSrcPort != 4791 {
		t.Errorf("capabilities %+v, want udp on %s, MTU 4200, ID %v, port 4791", c, na.IfName, link.IDIndex)
	}
	if !strings.Contains(c.Note, "receive buffer 4096 KiB") { // root gets what it asks for
		t.Errorf("note %q, want it to tell the receive buffer", c.Note)
	}
	// An interface that leaves checksums to the kernel cannot segment on older kernels.
	na.Command(t, "ethtool", "-K", na.IfName, "tx", "off")
	addr := na.Addr6
	c = openIn(t, na, udp.Options{}, addr).Caps()
	if c.ID != link.IDZero || !strings.Contains(c.Note, "does not complete checksums") {
		t.Errorf("without checksum offload: capabilities %+v, want ID %v and %q", c, link.IDZero,
			"does not complete checksums")
	}
	err := na.Do(func() error {
		l, err := udp.Open([]netip.Addr{addr}, udp.Options{Offload: udp.OffloadOn})
		if err == nil {
			_ = l.Close()
		}
		return err
	})
	if err == nil {
		t.Error("OffloadOn is accepted where offload is not possible")
	}
}

// What the kernel refuses is a counted loss.
func TestSendErrors(t *testing.T) {
	na, _ := linktest.NewVeth(t, 1500)
	a := openIn(t, na, udp.Options{}, na.Addr4)
	var next uint32
	far := linktest.NewRun(a, a, &next, 3, 64, 0)
	far.Dst[12] = 11 // no route
	linktest.SendAll(t, a, []link.Run{far})
	if s := a.Stats(); s.TxErrors != 3 || s.LastError != "network is unreachable" {
		t.Errorf("no route: %+v, want 3 frames lost", s)
	}
	foreign := linktest.NewRun(a, a, &next, 1, 64, 0)
	foreign.Src[15] = 77
	linktest.SendAll(t, a, []link.Run{foreign})
	if s := a.Stats(); s.TxErrors != 4 {
		t.Errorf("foreign source: %+v, want 4 frames lost", s)
	}
	na.Command(t, "iptables", "-A", "OUTPUT", "-p", "udp", "-j", "DROP")
	linktest.SendAll(t, a, []link.Run{linktest.NewRun(a, a, &next, 2, 64, 0)})
	if s := a.Stats(); s.TxErrors != 6 || s.LastError != "operation not permitted" {
		t.Errorf("firewall: %+v, want 6 frames lost", s)
	}
}

func TestMalformedDatagrams(t *testing.T) {
	addr := linktest.Loopback()
	l := open(t, udp.Options{}, addr)
	peer, err := net.DialUDP("udp4", nil, net.UDPAddrFromAddrPort(netip.AddrPortFrom(addr, link.Port)))
	if err != nil {
		t.Fatal(err)
	}
	defer peer.Close()
	for _, n := range []int{0, 1, 12, 15, 17, 18, 64} {
		if _, err := peer.Write(make([]byte, n)); err != nil {
			t.Fatal(err)
		}
	}
	got := linktest.Collect(t, l, 1)
	if len(got) != 1 || len(got[0].Buf) != 64 {
		t.Fatalf("received %+v, want one frame of 64 bytes", got)
	}
	if s := l.Stats(); s.RxDropped != 6 {
		t.Errorf("%d frames dropped, want 6", s.RxDropped)
	}
}

func TestOverflow(t *testing.T) {
	a := open(t, udp.Options{}, linktest.Loopback())
	b := open(t, udp.Options{RecvBuffer: 8 << 10}, linktest.Loopback())
	var next uint32
	const frames = 400
	for range frames {
		linktest.SendAll(t, a, []link.Run{linktest.NewRun(a, b, &next, 1, 1040, 0)})
	}
	in := make([]link.Run, 32)
	s, told := b.Stats(), false
	for end := time.Now().Add(require.Patience); s.RxFrames+s.RxOverflow != uint64(next) && time.Now().Before(end); {
		n, err := b.Recv(0, in)
		if err != nil {
			t.Fatal(err)
		}
		told = told || slices.ContainsFunc(in[:n], congested)
		if n == 0 { // the kernel tells the count with the next datagram that it queues
			linktest.SendAll(t, a, []link.Run{linktest.NewRun(a, b, &next, 1, 1040, 0)})
		}
		s = b.Stats()
	}
	if s.RxOverflow == 0 || s.RxFrames+s.RxOverflow != uint64(next) {
		t.Errorf("received %d, lost %d, want %d together", s.RxFrames, s.RxOverflow, next)
	}
	if !told {
		t.Error("got no run that is Congested, want the one behind frames that were lost")
	}
}

func congested(r link.Run) bool { return r.Congested }

// TestHalfFull: runs that are taken out of a receive buffer which is more than half full are Congested, though nothing
// was lost, and others are not. A large buffer does not become as full.
func TestHalfFull(t *testing.T) {
	for _, c := range []struct {
		buffer, frames int
		half           bool
	}{{64 << 10, 45, true}, {64 << 10, 15, false}, {1 << 20, 45, false}} {
		a := open(t, udp.Options{Offload: udp.OffloadOff}, linktest.Loopback())
		b := open(t, udp.Options{RecvBuffer: c.buffer}, linktest.Loopback())
		var next uint32
		for range c.frames {
			linktest.SendAll(t, a, []link.Run{linktest.NewRun(a, b, &next, 1, 1040, 0)})
		}
		in, got, marked, last := make([]link.Run, 10), 0, 0, false
		for end := time.Now().Add(require.Patience); got < c.frames && time.Now().Before(end); {
			n, err := b.Recv(0, in)
			if err != nil {
				t.Fatal(err)
			}
			got += n
			for _, r := range in[:n] {
				if last = r.Congested; last {
					marked++
				}
			}
		}
		if s := b.Stats(); got != c.frames || s.RxOverflow > 0 || marked > 0 != c.half || last {
			t.Errorf("%d frames in %d KiB: got %d, %d lost, %d of them Congested, the last one: %v; want some: %v, "+
				"and not the last", c.frames, c.buffer>>10, got, s.RxOverflow, marked, last, c.half)
		}
	}
}

func TestPortTaken(t *testing.T) {
	addr := linktest.Loopback()
	open(t, udp.Options{}, addr)
	_, err := udp.Open([]netip.Addr{addr}, udp.Options{})
	checkTaken(t, err, addr)

	// Another program has bound the port.
	addr = linktest.Loopback()
	foreign, err := net.ListenUDP("udp4", net.UDPAddrFromAddrPort(netip.AddrPortFrom(addr, link.Port)))
	if err != nil {
		t.Fatal(err)
	}
	defer foreign.Close()
	_, err = udp.Open([]netip.Addr{addr}, udp.Options{})
	checkTaken(t, err, addr)

	// The failed Open has left no socket on the port.
	_ = foreign.Close()
	open(t, udp.Options{}, addr)
}

func checkTaken(t *testing.T, err error, addr netip.Addr) {
	t.Helper()
	var taken *port.Error
	if !errors.Is(err, port.ErrTaken) || !errors.As(err, &taken) {
		t.Fatalf("error %v, want ErrTaken", err)
	}
	if taken.Addr != addr || taken.Owner.PID != os.Getpid() || taken.Owner.Name == "" {
		t.Errorf("%+v, want address %v and process %d", taken, addr, os.Getpid())
	}
	if !strings.Contains(err.Error(), "another address") {
		t.Errorf("%q, want it to say what to do", err)
	}
}

func TestOpenErrors(t *testing.T) {
	if _, err := udp.Open(nil, udp.Options{}); err == nil {
		t.Error("no address is accepted")
	}
	_, err := udp.Open([]netip.Addr{netip.MustParseAddr("203.0.113.77")}, udp.Options{})
	if err == nil || !strings.Contains(err.Error(), "no network interface holds the address: 203.0.113.77") {
		t.Errorf("foreign address: %v, want %q", err, "no network interface holds the address: 203.0.113.77")
	}
}

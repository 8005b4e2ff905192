package udp_test

import (
	"errors"
	"net/netip"
	"os"
	"os/exec"
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

func openShards(t testing.TB, n int, addrs ...netip.Addr) []link.Link {
	t.Helper()
	links, err := udp.OpenShards(addrs, udp.Options{}, n)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeAll(links) })
	return links
}

func closeAll(links []link.Link) {
	for _, l := range links {
		_ = l.Close()
	}
}

// runTo returns a run of frames for a QP.
func runTo(src, dst netip.Addr, qpn ib.QPN, frames int) link.Run {
	const size = 64
	r := link.Run{Src: ib.GIDFromAddr(src), Dst: ib.GIDFromAddr(dst), SrcPort: link.Port, Size: size,
		Buf: make([]byte, frames*size)}
	for i := range frames {
		f := r.Frame(i)
		f[5], f[6], f[7] = byte(qpn>>16), byte(qpn>>8), byte(qpn)
	}
	return r
}

// TestSteering: a frame for a QP, or a run of many, arrives by the link of the QP's shard and by no other.
func TestSteering(t *testing.T) {
	t.Run("loopback", func(t *testing.T) {
		for _, n := range []int{2, 4, link.MaxShards} {
			src, dst := linktest.Loopback(), linktest.Loopback()
			steers(t, open(t, udp.Options{}, src), openShards(t, n, dst), src, dst)
		}
	})
	t.Run("veth", func(t *testing.T) {
		na, nb := linktest.NewVeth(t, 1500)
		a := openIn(t, na, udp.Options{}, na.Addr4, na.Addr6)
		var b []link.Link
		if err := nb.Do(func() (err error) {
			b, err = udp.OpenShards([]netip.Addr{nb.Addr4, nb.Addr6}, udp.Options{}, 4)
			return err
		}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { closeAll(b) })
		steers(t, a, b, na.Addr4, nb.Addr4)
		steers(t, a, b, na.Addr6, nb.Addr6)
	})
}

func steers(t *testing.T, from link.Link, to []link.Link, src, dst netip.Addr) {
	t.Helper()
	in := make([]link.Run, 8)
	for _, qpn := range []ib.QPN{ib.QPNGSI, 2, 3, 16, 17, 18, 19, 0x120010, 0x34FFFD, 0xABCDEF, ib.QPNMulticast} {
		for _, frames := range []int{1, 20} {
			out := []link.Run{runTo(src, dst, qpn, frames)}
			if n, err := from.Send(0, out); n != 1 || err != nil {
				t.Fatalf("sent %d, %v; want 1", n, err)
			}
			want := link.ShardOf(qpn, len(to))
			for got, end := 0, time.Now().Add(require.Patience); got < frames; {
				if err := to[want].Wait(100*time.Millisecond, false); err != nil {
					t.Fatal(err)
				}
				n, err := to[want].Recv(0, in)
				for i := range in[:n] {
					got += in[i].Frames()
				}
				if err != nil || time.Now().After(end) {
					t.Fatalf("QP %#x: %d of %d frames arrived by link %d of %d, %v", uint32(qpn), got, frames, want,
						len(to), err)
				}
			}
			for i, l := range to {
				if n, err := l.Recv(0, in); n != 0 || err != nil {
					t.Errorf("QP %#x: %d runs by link %d of %d, %v; want them by %d", uint32(qpn), n, i, len(to), err,
						want)
				}
			}
		}
	}
}

// TestAddressesOfShards: what is for an address that came later is steered, too, however
// often it comes, and its port belongs to the links as long as any has it.
func TestAddressesOfShards(t *testing.T) {
	src, dst, later := linktest.Loopback(), linktest.Loopback(), linktest.Loopback()
	from, to := open(t, udp.Options{}, src), openShards(t, 4, dst)
	change := func(f func(link.Link, ib.GID) error, links []link.Link) {
		t.Helper()
		for _, l := range links {
			if err := f(l, ib.GIDFromAddr(later)); err != nil {
				t.Fatal(err)
			}
		}
	}
	taken := func() bool {
		l, err := udp.Open([]netip.Addr{later}, udp.Options{})
		if err == nil {
			_ = l.Close()
		} else if !errors.Is(err, port.ErrTaken) {
			t.Fatal(err)
		}
		return err != nil
	}
	for range 3 {
		change(link.Link.AddLocal, to)
		steers(t, from, to, src, later)
		change(link.Link.RemoveLocal, to[:3])
		if !taken() {
			t.Error("the port is free while a link has it")
		}
		change(link.Link.RemoveLocal, to[3:])
		if taken() {
			t.Error("the port is taken when no link has it")
		}
		steers(t, from, to, src, dst)
	}
	other := open(t, udp.Options{}, later)
	if err := to[0].AddLocal(ib.GIDFromAddr(later)); !errors.Is(err, port.ErrTaken) {
		t.Errorf("an address whose port another link has: %v, want %v", err, port.ErrTaken)
	}
	_ = other.Close()
	change(link.Link.AddLocal, to)
	closeAll(to)
	if taken() {
		t.Error("the port is taken when all links are closed")
	}
}

// TestShardsOwnThePort: sockets that share a port would let another driver of the same
// user in, which would take a part of the frames. It is refused, for as long as any of
// the links is open.
func TestShardsOwnThePort(t *testing.T) {
	const variable = "GOROCE_TEST_ADDR"
	if addr := os.Getenv(variable); addr != "" { // the second process
		_, err := udp.OpenShards([]netip.Addr{netip.MustParseAddr(addr)}, udp.Options{}, 2)
		if !errors.Is(err, port.ErrTaken) {
			t.Fatalf("error %v, want %v", err, port.ErrTaken)
		}
		return
	}
	addr := linktest.Loopback()
	links := openShards(t, 2, addr)
	second := exec.Command(os.Args[0], "-test.run=^TestShardsOwnThePort$")
	second.Env = append(os.Environ(), variable+"="+addr.String())
	if out, err := second.CombinedOutput(); err != nil {
		t.Fatalf("the second process: %v\n%s", err, out)
	}
	_ = links[0].Close()
	if _, err := udp.Open([]netip.Addr{addr}, udp.Options{}); !errors.Is(err, port.ErrTaken) {
		t.Errorf("with one link left: error %v, want %v", err, port.ErrTaken)
	}
	_ = links[1].Close()
	open(t, udp.Options{}, addr)
}

// TestShardsRefused: an open that fails leaves nothing.
func TestShardsRefused(t *testing.T) {
	addr := linktest.Loopback()
	for _, n := range []int{-1, 0, 3, 2 * link.MaxShards} {
		var attr *ib.AttrError
		if _, err := udp.OpenShards([]netip.Addr{addr}, udp.Options{}, n); !errors.As(err, &attr) ||
			!strings.Contains(err.Error(), "power of two") {
			t.Errorf("%d shards: error %v, want an *ib.AttrError that says what is allowed", n, err)
		}
	}
	if _, err := udp.OpenShards([]netip.Addr{addr, netip.MustParseAddr("192.0.2.77")}, udp.Options{}, 2); err == nil {
		t.Error("a link on an address of another host")
	}
	openShards(t, 2, addr)
}

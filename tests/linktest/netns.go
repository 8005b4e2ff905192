package linktest

import (
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/tests/require"
)

// Namespace is a network namespace with one veth interface and loopback up. It has no name and ends with the test,
// however the test ends.
type Namespace struct {
	IfName string
	Addr4  netip.Addr
	Addr6  netip.Addr
	MAC    [6]byte
	handle netns.NsHandle
}

var vethCount atomic.Int32

// NewVeth makes two namespaces joined by a veth pair with the given MTU. The test
// needs root.
func NewVeth(t testing.TB, mtu int) (a, b *Namespace) {
	t.Helper()
	require.Root(t)
	a, b = newNamespace(t), newNamespace(t)
	name(a, b)
	MakeVeth(t, a, b, mtu)
	return a, b
}

// name gives the ends of a veth pair names that no other test uses.
func name(a, b *Namespace) {
	n := vethCount.Add(1)
	a.IfName, b.IfName = fmt.Sprintf("gr%da%d", n, os.Getpid()), fmt.Sprintf("gr%db%d", n, os.Getpid())
}

// MakeVeth makes the veth pair of two namespaces, which was deleted, anew: with the same names
// and addresses.
func MakeVeth(t testing.TB, a, b *Namespace, mtu int) {
	t.Helper()
	connect(t, a, b, mtu, []string{"10.99.0.1/24", "fd99::1/64"}, []string{"10.99.0.2/24", "fd99::2/64"})
}

// connect joins two namespaces by a veth pair with these addresses.
func connect(t testing.TB, a, b *Namespace, mtu int, addrsA, addrsB []string) {
	t.Helper()
	err := a.Do(func() error {
		attrs := netlink.NewLinkAttrs()
		attrs.Name, attrs.MTU = a.IfName, mtu
		return netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: b.IfName,
			PeerNamespace: netlink.NsFd(b.handle)})
	})
	if err != nil {
		t.Fatalf("create veth pair: %v", err)
	}
	a.configure(t, mtu, addrsA...)
	b.configure(t, mtu, addrsB...)
	a.waitUp(t)
	b.waitUp(t)
}

// waitUp waits until the interface is operational and its IPv6 link-local address usable. The kernel notices some time
// after both ends are up, and drops packets until then.
func (n *Namespace) waitUp(t testing.TB) {
	t.Helper()
	err := n.Do(func() error {
		for end := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
			itf, err := netlink.LinkByName(n.IfName)
			if err != nil {
				return err
			}
			state := itf.Attrs().OperState
			if state == netlink.OperUp && hasLinkLocal(itf) {
				return nil
			}
			if time.Now().After(end) {
				return fmt.Errorf("interface is still %v, link-local address usable: %v", state, hasLinkLocal(itf))
			}
		}
	})
	if err != nil {
		t.Fatalf("%s: %v", n.IfName, err)
	}
}

// hasLinkLocal reports whether the interface has an IPv6 link-local address that has passed duplicate address
// detection.
func hasLinkLocal(itf netlink.Link) bool {
	addrs, err := netlink.AddrList(itf, netlink.FAMILY_V6)
	if err != nil {
		return false
	}
	return slices.ContainsFunc(addrs, func(a netlink.Addr) bool {
		return a.IP.IsLinkLocalUnicast() && a.Flags&(unix.IFA_F_TENTATIVE|unix.IFA_F_DADFAILED) == 0
	})
}

func newNamespace(t testing.TB) *Namespace {
	t.Helper()
	n := &Namespace{}
	err := onThread(func() (err error) {
		n.handle, err = netns.New()
		return err
	})
	if err != nil {
		t.Fatalf("create network namespace: %v", err)
	}
	t.Cleanup(func() { _ = n.handle.Close() })
	return n
}

// configure gives n's interface its addresses and brings it up.
func (n *Namespace) configure(t testing.TB, mtu int, addrs ...string) {
	t.Helper()
	err := n.Do(func() error {
		lo, err := netlink.LinkByName("lo")
		if err != nil {
			return err
		}
		if err := netlink.LinkSetUp(lo); err != nil {
			return err
		}
		veth, err := netlink.LinkByName(n.IfName)
		if err != nil {
			return err
		}
		// This saves each test the second that duplicate address detection takes. If /proc is read-only, waitUp waits
		// for it.
		_ = os.WriteFile("/proc/sys/net/ipv6/conf/"+n.IfName+"/accept_dad", []byte("0"), 0)
		n.MAC = [6]byte(veth.Attrs().HardwareAddr)
		if err := netlink.LinkSetMTU(veth, mtu); err != nil {
			return err
		}
		for _, s := range addrs {
			if err := n.addAddr(veth, s); err != nil {
				return err
			}
		}
		return netlink.LinkSetUp(veth)
	})
	if err != nil {
		t.Fatalf("configure %s: %v", n.IfName, err)
	}
}

func (n *Namespace) addAddr(itf netlink.Link, s string) error {
	addr, err := netlink.ParseAddr(s)
	if err != nil {
		return err
	}
	addr.Flags = unix.IFA_F_NODAD // usable at once
	p := netip.MustParsePrefix(s)
	if p.Addr().Is4() {
		n.Addr4 = p.Addr()
	} else {
		n.Addr6 = p.Addr()
	}
	return netlink.AddrAdd(itf, addr)
}

// Spare adds an address to n's interface, beside those that n names, and returns it.
func (n *Namespace) Spare(t testing.TB, v6 bool) ib.GID {
	t.Helper()
	addr := "10.99.0.101/24"
	if v6 {
		addr = "fd99::101/64"
	}
	n.Command(t, "ip", "addr", "add", addr, "dev", n.IfName, "nodad")
	return ib.GIDFromAddr(netip.MustParsePrefix(addr).Addr())
}

// Do runs f on a thread in the namespace. Sockets that f opens stay in the namespace.
func (n *Namespace) Do(f func() error) error {
	return onThread(func() error {
		if err := netns.Set(n.handle); err != nil {
			return err
		}
		return f()
	})
}

// onThread runs f on a thread of its own, which ends with f, because other goroutines must not run on a thread whose
// namespace has changed.
func onThread(f func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		done <- f()
	}()
	return <-done
}

// Command runs a program in the namespace and returns its output.
func (n *Namespace) Command(t testing.TB, name string, args ...string) string {
	t.Helper()
	path := require.Command(t, name)
	var out []byte
	err := n.Do(func() (err error) {
		out, err = exec.Command(path, args...).CombinedOutput()
		return err
	})
	if err != nil {
		t.Fatalf("%s %v: %v\n%s", name, args, err, out)
	}
	return string(out)
}

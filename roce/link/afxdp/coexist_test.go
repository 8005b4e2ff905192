package afxdp

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/goroce/goroce/roce/link"
	"github.com/goroce/goroce/tests/linktest"
)

// Other traffic of the interface is not affected by the link, while many RoCEv2 frames arrive.
func TestOtherTraffic(t *testing.T) {
	na, nb := linktest.NewVeth(t, 1500)
	for _, o := range []Options{{}, {Generic: true}} {
		a, b := open(t, na, o, na.Addr4, na.Addr6), open(t, nb, o, nb.Addr4, nb.Addr6)
		linktest.Meet(t, a, b)
		stop := flood(t, b, na.Addr4)
		for _, addr := range []netip.Addr{na.Addr4, na.Addr6} {
			for _, size := range []int{64, 1 << 20} {
				echoTCP(t, na, nb, addr, size)
			}
			for _, size := range []int{1, 1400, 5000} { // the last in fragments
				echoUDP(t, na, nb, addr, size)
			}
		}
		stop()
		_, _ = a.Close(), b.Close()
	}
}

// in runs f in a namespace and ends the test if it fails.
func in(t *testing.T, ns *linktest.Namespace, f func() error) {
	t.Helper()
	if err := ns.Do(f); err != nil {
		t.Fatal(err)
	}
}

// echoTCP sends bytes to a server at addr, in namespace na, and wants them back.
func echoTCP(t *testing.T, na, nb *linktest.Namespace, addr netip.Addr, size int) {
	t.Helper()
	var listener net.Listener
	in(t, na, func() (err error) {
		listener, err = net.Listen("tcp", netip.AddrPortFrom(addr, 0).String())
		return err
	})
	defer listener.Close()
	go func() {
		c, err := listener.Accept()
		if err == nil {
			_, _ = io.Copy(c, c)
			_ = c.Close()
		}
	}()
	var c net.Conn
	in(t, nb, func() (err error) {
		c, err = net.DialTimeout("tcp", listener.Addr().String(), patience)
		return err
	})
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(patience))
	out, back := pattern(size), make([]byte, size)
	go c.Write(out)
	if _, err := io.ReadFull(c, back); err != nil || !bytes.Equal(out, back) {
		t.Errorf("TCP to %v, %d bytes: came back as they left: %v, %v; want true", addr, size,
			bytes.Equal(out, back), err)
	}
}

// echoUDP is echoTCP for one datagram, which is repeated until it comes back.
func echoUDP(t *testing.T, na, nb *linktest.Namespace, addr netip.Addr, size int) {
	t.Helper()
	var server, c net.PacketConn
	in(t, na, func() (err error) {
		server, err = net.ListenPacket("udp", netip.AddrPortFrom(addr, 0).String())
		return err
	})
	defer server.Close()
	go func() {
		buf := make([]byte, 1<<16)
		for {
			n, from, err := server.ReadFrom(buf)
			if err != nil {
				return
			}
			_, _ = server.WriteTo(buf[:n], from)
		}
	}()
	in(t, nb, func() (err error) {
		c, err = net.ListenPacket("udp", ":0")
		return err
	})
	defer c.Close()
	out, back := pattern(size), make([]byte, 1<<16)
	for range 20 {
		_ = c.SetDeadline(time.Now().Add(patience / 20))
		if _, err := c.WriteTo(out, server.LocalAddr()); err != nil {
			t.Fatal(err)
		}
		if n, _, err := c.ReadFrom(back); err == nil && bytes.Equal(out, back[:n]) {
			return
		}
	}
	t.Errorf("UDP to %v: %d bytes did not come back", addr, size)
}

func pattern(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i*7 + i>>8)
	}
	return b
}

// The kernel does not answer RoCEv2 packets, not even those to closed queues.
func TestGuard(t *testing.T) {
	na, nb := linktest.NewVeth(t, 1500)
	a, b := open(t, na, Options{}, na.Addr4), open(t, nb, Options{Generic: true}, nb.Addr4)
	linktest.Meet(t, a, b)
	if err := b.program.sockets.Delete(uint32(0)); err != nil {
		t.Fatal(err)
	}
	var psn uint32
	linktest.SendAll(t, a, []link.Run{linktest.NewRun(a, b, &psn, 5, 64, 0)})
	linktest.Collect(t, b, 5) // through the kernel
	if _, byKernel := b.byRings(); byKernel < 5 {
		t.Errorf("%d frames came through the kernel, want 5", byKernel)
	}
	na.Command(t, "ip", "neigh") // ICMP would have come by now
	for line := range strings.Lines(na.Command(t, "cat", "/proc/thread-self/net/snmp")) {
		if f := strings.Fields(line); f[0] == "Icmp:" && f[1] != "InMsgs" && f[4] != "0" {
			t.Errorf("%s ICMP unreachable messages came back, want none", f[4])
		}
	}
}

func TestOpenErrors(t *testing.T) { linktest.WrongAddresses(t, native, plain) }

func TestLoopbackInterface(t *testing.T) {
	na, _ := linktest.NewVeth(t, 1500)
	err := na.Do(func() error {
		_, err := native([]netip.Addr{linktest.Loopback()})
		return err
	})
	if !errors.Is(err, errors.ErrUnsupported) || !strings.Contains(err.Error(), "use link udp") {
		t.Errorf("%v, want the advice to use link udp", err)
	}
}

// dropping runs f on a thread of the namespace that lacks some capabilities, or has
// only those.
func dropping(ns *linktest.Namespace, f func() error, lack bool, caps ...uint) error {
	return ns.Do(func() error {
		hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		var data, listed [2]unix.CapUserData
		if err := unix.Capget(&hdr, &data[0]); err != nil {
			return err
		}
		for _, c := range caps {
			listed[c/32].Effective |= 1 << (c % 32)
		}
		for i := range data {
			if lack {
				data[i].Effective &^= listed[i].Effective
			} else {
				data[i].Effective &= listed[i].Effective
			}
		}
		if err := unix.Capset(&hdr, &data[0]); err != nil {
			return err
		}
		return f()
	})
}

// The error names the missing capability; the three capabilities suffice.
func TestPermission(t *testing.T) {
	na, _ := linktest.NewVeth(t, 1500)
	open := func() error {
		l, err := native([]netip.Addr{na.Addr4})
		if err == nil {
			_ = l.Close()
		}
		return err
	}
	for _, tt := range []struct {
		drop []uint
		want string
	}{
		{[]uint{unix.CAP_NET_RAW}, "missing: CAP_NET_RAW"},
		{[]uint{unix.CAP_NET_ADMIN, unix.CAP_SYS_ADMIN}, "missing: CAP_NET_ADMIN"},
		{[]uint{unix.CAP_BPF, unix.CAP_SYS_ADMIN}, "missing: CAP_BPF"},
		{[]uint{unix.CAP_NET_RAW, unix.CAP_NET_ADMIN, unix.CAP_BPF, unix.CAP_SYS_ADMIN},
			"missing: CAP_NET_RAW, CAP_NET_ADMIN, CAP_BPF"},
	} {
		err := dropping(na, open, true, tt.drop...)
		if !errors.Is(err, fs.ErrPermission) || !strings.HasSuffix(err.Error(), tt.want) {
			t.Errorf("without %v: %v, want ErrPermission, %q", tt.drop, err, tt.want)
		}
	}
	if id := hooked(t, na); id != 0 {
		t.Errorf("program %d is on the interface, want none", id)
	}
	if err := dropping(na, open, false, unix.CAP_NET_RAW, unix.CAP_NET_ADMIN, unix.CAP_BPF); err != nil {
		t.Errorf("with no more than the capabilities that are needed: %v", err)
	}
	// Without CAP_IPC_LOCK the memory counts against a limit.
	err := dropping(na, func() error {
		var old unix.Rlimit
		if err := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &old); err != nil {
			return err
		}
		if err := unix.Setrlimit(unix.RLIMIT_MEMLOCK, &unix.Rlimit{Cur: 1 << 20, Max: old.Max}); err != nil {
			return err
		}
		defer unix.Setrlimit(unix.RLIMIT_MEMLOCK, &old)
		return open()
	}, true, unix.CAP_IPC_LOCK)
	if !errors.Is(err, unix.ENOBUFS) || !strings.Contains(err.Error(), "CAP_IPC_LOCK") {
		t.Errorf("with 1 MiB of memory to lock: %v, want ENOBUFS and what to do", err)
	}
}

// Errors say what to do next.
func TestAdvice(t *testing.T) {
	for _, tt := range []struct {
		err  error
		want string
		is   error
	}{
		{unix.EAFNOSUPPORT, "CONFIG_XDP_SOCKETS", errors.ErrUnsupported},
		{unix.ENOSYS, "CONFIG_BPF_SYSCALL", errors.ErrUnsupported},
		{&memlockError{6 << 20},
			"6144 KiB of UMEM: it exceeds what may be locked in memory (`ulimit -l`); raise the limit, or give the " +
				"program CAP_IPC_LOCK", unix.ENOBUFS},
		{unix.EBUSY, "another program has AF_XDP sockets", unix.EBUSY},
		{unix.EINVAL, "nosuch0: attach the XDP program: invalid argument", unix.EINVAL},
	} {
		err := refused("nosuch0", "attach the XDP program", tt.err)
		if !strings.Contains(err.Error(), tt.want) || !errors.Is(err, tt.is) {
			t.Errorf("%v, want %q", err, tt.want)
		}
	}
	if err := refused("nosuch0", "nothing", nil); err != nil {
		t.Errorf("no error becomes %v", err)
	}
}

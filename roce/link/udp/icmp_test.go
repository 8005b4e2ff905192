package udp_test

import (
	"encoding/binary"
	"net"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/link"
	"github.com/goroce/goroce/roce/link/udp"
	"github.com/goroce/goroce/tests/linktest"
	"github.com/goroce/goroce/tests/require"
)

// TestClosedPort: frames to a host that does not listen are reported, and cost no frame to another one; afterwards the
// link sleeps as before.
func TestClosedPort(t *testing.T) {
	for _, v6 := range []bool{false, true} {
		na, nb := linktest.NewVeth(t, 1500)
		from, to, closed := na.Addr4, nb.Addr4, netip.MustParseAddr("10.99.0.77")
		mask := "/24"
		if v6 {
			from, to, closed, mask = na.Addr6, nb.Addr6, netip.MustParseAddr("fd99::77"), "/64"
		}
		nb.Command(t, "ip", "address", "add", closed.String()+mask, "dev", nb.IfName, "nodad")
		told := make(chan ib.GID, 100)
		a := openIn(t, na, udp.Options{OnError: func(peer ib.GID, errno syscall.Errno) {
			if errno != syscall.ECONNREFUSED {
				t.Errorf("error %v, want ECONNREFUSED", errno)
			}
			told <- peer
		}}, from)
		b := openIn(t, nb, udp.Options{}, to)
		linktest.Meet(t, a, b)
		next := uint32(0)
		for range 3 {
			lost := linktest.NewRun(a, b, &next, 1, 64, 0)
			lost.Dst = ib.GIDFromAddr(closed)
			good := linktest.NewRun(a, b, &next, 2, 64, 0)
			linktest.SendAll(t, a, []link.Run{lost, good})
			linktest.Collect(t, b, 2)
		}
		awaitError(t, a, told, ib.GIDFromAddr(closed))
		if n := a.Stats().TxErrors; n != 0 {
			t.Errorf("%d frames were lost, want none: %s", n, a.Stats().LastError)
		}
		sleeps(t, a)
	}
}

// awaitError receives until the link has told of a peer.
func awaitError(t *testing.T, l link.Link, told chan ib.GID, want ib.GID) {
	t.Helper()
	in := make([]link.Run, 4)
	for end := time.Now().Add(5 * time.Second); time.Now().Before(end); {
		if _, err := l.Recv(0, in); err != nil {
			t.Fatal(err)
		}
		select {
		case got := <-told:
			if got != want {
				t.Errorf("told of %v, want %v", got.Addr(), want.Addr())
			}
			return
		default:
			_ = l.Wait(time.Millisecond, false)
		}
	}
	t.Error("nobody was told of the closed port")
}

// sleeps fails if nothing happens and Wait returns again and again: the error queue has not been emptied.
func sleeps(t *testing.T, l link.Link) {
	t.Helper()
	in := make([]link.Run, 4)
	for range 100 { // what is on its way arrives meanwhile
		start := time.Now()
		if err := l.Wait(20*time.Millisecond, false); err != nil {
			t.Fatal(err)
		}
		if time.Since(start) > 10*time.Millisecond {
			return
		}
		if _, err := l.Recv(0, in); err != nil {
			t.Fatal(err)
		}
	}
	t.Error("Wait does not wait any more")
}

// TestErrorsAreBounded: however many ICMP errors somebody forges, a call reads a few of them only, and none keeps back
// a frame that has arrived.
func TestErrorsAreBounded(t *testing.T) {
	require.Root(t)
	const errors, most = 200, 64
	at := linktest.Loopback()
	told := 0
	a := open(t, udp.Options{OnError: func(ib.GID, syscall.Errno) { told++ }}, at)
	b := open(t, udp.Options{}, linktest.Loopback())
	forge(t, at, errors)
	next := uint32(0)
	linktest.SendAll(t, b, []link.Run{linktest.NewRun(b, a, &next, 1, 64, 0)})
	all, frames := 0, 0
	in := make([]link.Run, 4)
	for calls := 0; all < errors || frames == 0; calls++ {
		n, err := a.Recv(0, in)
		if err == nil && calls > 0 {
			err = a.Wait(-1, false)
		}
		if err != nil {
			t.Fatal(err)
		}
		if told > 2*most { // by Recv, and by Wait
			t.Fatalf("two calls have read %d errors, want %d at most", told, 2*most)
		}
		frames, all, told = frames+n, all+told, 0
		if frames == 0 && calls > 2 {
			t.Fatalf("%d calls have received nothing, want at most 2, beside %d errors", calls, all)
		}
	}
}

// forge sends ICMP messages to an address of this machine: port 4791 of some host is closed to what came from its
// port 4791.
func forge(t *testing.T, at netip.Addr, n int) {
	t.Helper()
	c, err := net.Dial("ip4:icmp", at.String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	src, dst := at.As4(), [4]byte{192, 0, 2, 1}
	const unreachable, closedPort = 3, 3
	m := []byte{unreachable, closedPort, 0, 0, 0, 0, 0, 0} // and the headers of the rejected packet
	m = append(m, 0x45, 0, 0, 28, 0, 0, 0, 0, 64, syscall.IPPROTO_UDP, 0, 0)
	m = append(append(m, src[:]...), dst[:]...)
	m = binary.BigEndian.AppendUint16(m, link.Port)
	m = binary.BigEndian.AppendUint16(m, link.Port)
	m = append(m, 0, 8, 0, 0)
	sum := uint32(0)
	for i := 0; i < len(m); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(m[i:]))
	}
	for sum > 0xFFFF {
		sum = sum>>16 + sum&0xFFFF
	}
	binary.BigEndian.PutUint16(m[2:], ^uint16(sum))
	for range n {
		if _, err := c.Write(m); err != nil {
			t.Fatal(err)
		}
	}
}

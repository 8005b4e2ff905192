package packet

import (
	"bytes"
	"errors"
	"net/netip"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/link"
	"github.com/goroce/goroce/tests/linktest"
)

// openIn opens a link in a namespace, for as long as the test runs.
func openIn(t *testing.T, ns *linktest.Namespace, addr netip.Addr) (c *Conn) {
	t.Helper()
	err := ns.Do(func() (err error) {
		c, err = Open([]netip.Addr{addr}, Options{})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// TestCloseWhileAdding: Close waits for AddLocal without c.mu, which AddLocal may need.
func TestCloseWhileAdding(t *testing.T) {
	ns, _ := linktest.NewVeth(t, 1500)
	c := openIn(t, ns, ns.Addr4)
	closed := make(chan error, 1)
	err := c.AddLocalWith(ns.Spare(t, false), func([]ib.GID) error {
		go func() { closed <- c.Close() }()
		for range 1000 {
			runtime.Gosched()
			if !c.mu.TryLock() {
				t.Error("Close holds c.mu")
				break
			}
			c.mu.Unlock()
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	if err := <-closed; err != nil {
		t.Error(err)
	}
}

// TestRejoinFails: the interface was made again, and the host refuses the membership of a group there. AddLocal fails,
// and the next one joins the group.
func TestRejoinFails(t *testing.T) {
	na, nb := linktest.NewVeth(t, 1500)
	a := openIn(t, na, na.Addr4)
	group := linktest.NewGroup(a)
	if err := a.Join(group); err != nil {
		t.Fatal(err)
	}
	na.Command(t, "ip", "link", "del", na.IfName)
	linktest.MakeVeth(t, na, nb, 1500)
	spare := na.Spare(t, false)
	const most = "/proc/sys/net/ipv4/igmp_max_memberships"
	na.Command(t, "sh", "-c", "echo 0 >"+most)
	if err := a.AddLocal(spare); !errors.Is(err, unix.ENOBUFS) {
		t.Fatalf("AddLocal: %v, want ENOBUFS", err)
	}
	na.Command(t, "sh", "-c", "echo 20 >"+most)
	if err := a.AddLocal(spare); err != nil {
		t.Fatal(err)
	}
	b := openIn(t, nb, nb.Addr4)
	sent := linktest.NewDatagram(b, group, 64)
	linktest.SendAll(t, b, []link.Run{sent})
	if got := linktest.Collect(t, a, 1); !bytes.Equal(got[0].Buf, sent.Buf) || got[0].Dst != group {
		t.Errorf("received %+v, want what was sent to %v", got, group.Addr())
	}
}

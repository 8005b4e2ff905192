package rdmacm_test

import (
	"errors"
	"net"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce"
	"github.com/goroce/goroce/roce/internal/device"
	"github.com/goroce/goroce/roce/link"
	"github.com/goroce/goroce/roce/link/udp"
	"github.com/goroce/goroce/roce/link/wrap"
	"github.com/goroce/goroce/roce/rdmacm"
	"github.com/goroce/goroce/tests/linktest"
	"github.com/goroce/goroce/wire"
)

// TestClosedPort: the ICMP error of a closed UDP port ends a dial with an *UnreachableError. The device's time stands
// still, so that neither a retransmission nor a limit can end it: nothing but the kernel bounds how long it takes.
func TestClosedPort(t *testing.T) {
	var dev atomic.Pointer[roce.Device]
	l, err := udp.Open([]netip.Addr{linktest.Loopback()}, udp.Options{OnError: func(peer ib.GID, errno syscall.Errno) {
		(*dev.Load()).Unreachable(peer, int(errno))
	}})
	must(t, err)
	l = wrap.Seal(wrap.Loopback(l))
	d, err := roce.Open(l, roce.Options{Manual: true})
	must(t, err)
	dev.Store(&d)
	defer d.Close()
	defer standStill(d, l)()
	cm, err := rdmacm.Open(d, rdmacm.Options{})
	must(t, err)

	closed := linktest.Loopback()
	_, err = cm.Dial(patience(t), net.JoinHostPort(closed.String(), "7471"), rdmacm.Config{})
	var unreachable *rdmacm.UnreachableError
	if !errors.As(err, &unreachable) || unreachable.Op != "dial" || !errors.Is(err, syscall.ECONNREFUSED) ||
		unreachable.Addr != netip.AddrPortFrom(closed, 7471) {
		t.Fatalf("Dial returned %#v, want dial %v: %v", err, netip.AddrPortFrom(closed, 7471), syscall.ECONNREFUSED)
	}
	if want := "UDP port 4791 of " + closed.String() + " is closed"; !strings.Contains(err.Error(), want) {
		t.Errorf("%q does not say %q", err, want)
	}
	if s := d.(*device.Device).CMStats(); s.Sent.Of(wire.AttrREQ) != 1 || s.Resent != 0 {
		t.Errorf("%d requests were sent, want 1", s.Sent.Of(wire.AttrREQ))
	}
	must(t, cm.Close())
}

// standStill drives a device on a link, whose time does not go on, until stop is called.
func standStill(d roce.Device, l link.Link) (stop func()) {
	var ended atomic.Bool
	var driver sync.WaitGroup
	driver.Go(func() {
		for !ended.Load() {
			if !d.Step(1) {
				_ = l.Wait(time.Millisecond, false)
			}
		}
	})
	return func() {
		ended.Store(true)
		driver.Wait()
	}
}

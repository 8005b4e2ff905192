//go:build rnic && cgo

package rnic

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/rdmacm"
	"github.com/goroce/goroce/tests/require"
)

// channel opens an event channel for the duration of the test.
func (r *rig) channel() ib.CM {
	r.Helper()
	ch := try(r.Device.(ib.CMDevice).OpenCM())(r)
	r.Cleanup(func() { r.must(ch.Close()) })
	return ch
}

// event waits for the next event, which must be of that type.
func (r *rig) event(ch ib.CM, want ib.CMEventType) ib.CMEvent {
	r.Helper()
	ev := try(ch.NextEvent(r.ctx))(r)
	if ev.Type != want {
		r.Fatalf("event %v, status %d; want %v", ev.Type, ev.Status, want)
	}
	return ev
}

// resolving creates an ID that resolves the address of the device itself.
func (r *rig) resolving(ch ib.CM) ib.CMID {
	r.Helper()
	id := try(ch.CreateID(ib.CMIDInit{}))(r)
	r.must(id.ResolveAddr(netip.AddrPort{}, netip.AddrPortFrom(r.gid.GID.Addr(), 7), time.Second))
	return id
}

// manager opens package rdmacm on the device.
func (r *rig) manager() *rdmacm.CM {
	r.Helper()
	m := try(rdmacm.Open(r.Device, rdmacm.Options{}))(r)
	r.Cleanup(func() { r.must(m.Close()) })
	return m
}

// accept starts a listener that accepts connections, and returns its address and a channel
// with the connections.
func (r *rig) accept(o rdmacm.Config) (addr string, conns chan *rdmacm.Conn) {
	r.Helper()
	at := netip.AddrPortFrom(r.gid.GID.Addr(), 0).String()
	l := try(r.manager().Listen(r.ctx, at, rdmacm.ListenConfig{Config: o}))(r)
	conns = make(chan *rdmacm.Conn)
	go func() {
		for {
			conn, err := l.Accept(r.ctx)
			if err != nil {
				close(conns)
				return
			}
			conns <- conn
		}
	}()
	return l.Addr().String(), conns
}

// TestDial connects by address with package rdmacm over librdmacm, with parameters that are
// not the kernel's defaults.
func TestDial(t *testing.T) {
	r := openRig(t)
	addr, conns := r.accept(rdmacm.Config{})
	for _, mtu := range []ib.MTU{ib.MTU1024, ib.MTU512} {
		conn := try(r.manager().Dial(r.ctx, addr, rdmacm.Config{PathMTU: mtu, AckTimeout: 18, InitiatorDepth: 2}))(r)
		peer := <-conns
		for _, c := range []*rdmacm.Conn{conn, peer} {
			a := c.QPAttr()
			if q := try(c.QP().Query())(r); a.PathMTU != mtu || q.PathMTU != mtu || q.Timeout != 18 ||
				q.State != ib.StateRTS {
				t.Errorf("path MTU %d and %d, timeout %d, state %v; want %d, 18, RTS", a.PathMTU, q.PathMTU, q.Timeout,
					q.State, mtu)
			}
		}
		if conn.QPAttr().MaxRdAtomic != 2 || peer.QPAttr().MaxDestRdAtomic != 2 {
			t.Errorf("initiator depth %d, the peer's responder resources %d; want 2", conn.QPAttr().MaxRdAtomic,
				peer.QPAttr().MaxDestRdAtomic)
		}
		r.must(conn.Disconnect(r.ctx))
		<-peer.Done()
		if err := peer.Err(); !errors.Is(err, rdmacm.ErrDisconnected) {
			t.Errorf("the peer's connection ended with %v, want %v", err, rdmacm.ErrDisconnected)
		}
		r.must(peer.Close())
	}
}

// TestTurnDown checks that a request that the listener cannot satisfy is refused, with the
// reason that the kernel can send.
func TestTurnDown(t *testing.T) {
	r := openRig(t)
	addr, _ := r.accept(rdmacm.Config{PathMTU: ib.MTU512})
	_, err := r.manager().Dial(r.ctx, addr, rdmacm.Config{PathMTU: ib.MTU1024})
	var reject *rdmacm.RejectError
	if !errors.As(err, &reject) || reject.Reason != ib.RejectConsumer {
		t.Errorf("%v, want a consumer's reject", err)
	}
}

// TestCMZone checks that a link-local address may have the device's interface as its zone, and no other.
func TestCMZone(t *testing.T) {
	r := openRig(t)
	rows := try(r.GIDs(1))(r)
	at := slices.IndexFunc(rows, func(e ib.GIDEntry) bool { return !e.GID.Is4() && e.GID.Addr().IsLinkLocalUnicast() })
	if at < 0 {
		t.Skip("skipped: needs a device with a link-local IPv6 address (rxe0 in tests/rxe has one)")
	}
	ch := r.channel()
	newID := func() ib.CMID { return try(ch.CreateID(ib.CMIDInit{}))(r) }
	zoned := func(zone string) netip.AddrPort { return netip.AddrPortFrom(rows[at].GID.Addr().WithZone(zone), 7) }
	bind := func(zone string) error { return newID().Bind(zoned(zone)) }
	from := func(zone string) error { return newID().ResolveAddr(zoned(zone), zoned(""), time.Second) }
	to := func(zone string) error { return newID().ResolveAddr(netip.AddrPort{}, zoned(zone), time.Second) }
	for _, c := range []struct {
		name string
		call func(zone string) error
		want error
	}{{"bind", bind, ib.ErrNoAddr}, {"resolve from", from, ib.ErrNoAddr}, {"resolve to", to, ib.ErrNoRoute}} {
		err := c.call("lo")
		if e := new(ib.AttrError); !errors.As(err, &e) || e.Attr != "zone" || !errors.Is(err, c.want) {
			t.Errorf("%s an address of another interface: %v, want zone, %v", c.name, err, c.want)
		}
	}
	r.must(to(rows[at].NetIf))
	r.event(ch, ib.CMAddrResolved)
	r.must(bind(rows[at].NetIf))
}

// TestCMMigrate checks that unread events move with their ID, also those in the kernel, which
// does not signal them on the new channel.
func TestCMMigrate(t *testing.T) {
	r := openRig(t)
	from, to := r.channel(), r.channel()
	for range 100 {
		id := r.resolving(from)
		r.must(id.Migrate(to))
		if ev := r.event(to, ib.CMAddrResolved); ev.ID != id {
			t.Fatal("the event is of another ID")
		}
		r.must(id.Close())
	}
}

// TestCMClose checks that closing a channel or the device ends all waits for events, and that
// no goroutine or kernel ID is left.
func TestCMClose(t *testing.T) {
	r := openRig(t)
	for _, what := range []string{"channel", "device"} {
		dev := try(Open(r.Attr().Name))(r)
		ch := try(dev.(ib.CMDevice).OpenCM())(r)
		id := r.resolving(ch)
		waited := make(chan error, 1)
		got := make(chan ib.CMEvent, 1)
		go func() {
			for {
				ev, err := ch.NextEvent(context.Background())
				if err != nil {
					waited <- err
					return
				}
				got <- ev
			}
		}()
		if ev := <-got; ev.Type != ib.CMAddrResolved { // after this the reader waits for the next event
			t.Errorf("event %v, want %v", ev.Type, ib.CMAddrResolved)
		}
		if what == "channel" {
			r.must(ch.Close())
		} else {
			r.must(dev.Close())
			if ev := <-got; ev.Type != ib.CMDeviceRemoval || ev.ID != id {
				t.Errorf("event %v, want %v of the ID", ev.Type, ib.CMDeviceRemoval)
			}
		}
		if err := <-waited; !errors.Is(err, ib.ErrClosed) {
			t.Errorf("with the %s closed: %v, want %v", what, err, ib.ErrClosed)
		}
		if _, err := id.Query(); !errors.Is(err, ib.ErrClosed) {
			t.Errorf("an ID of a closed %s: %v, want %v", what, err, ib.ErrClosed)
		}
		if what == "channel" { // in the other case closing the device ends everything
			r.must(id.Close())
			r.must(ch.Close())
		}
		r.must(dev.Close())
		if _, err := dev.(ib.CMDevice).OpenCM(); !errors.Is(err, ib.ErrClosed) {
			t.Errorf("a channel of a closed device: %v, want %v", err, ib.ErrClosed)
		}
	}
	for strings.Contains(goroutines(), "newCMChannel") { // goroutines of earlier tests may still be ending
		if r.ctx.Err() != nil {
			t.Fatalf("a channel's reader is left:\n%s", goroutines())
		}
		runtime.Gosched()
	}
	out, err := exec.Command("rdma", "resource", "show", "cm_id").CombinedOutput()
	if err != nil || strings.Contains(string(out), fmt.Sprintf(" pid %d ", os.Getpid())) {
		t.Errorf("IDs are left, want none: %v\n%s", err, out)
	}
}

// goroutines returns the stacks of all goroutines.
func goroutines() string {
	buf := make([]byte, 1<<20)
	return string(buf[:runtime.Stack(buf, true)])
}

// silent returns the address of a datagram service that does not answer.
func (r *rig) silent() netip.AddrPort {
	r.Helper()
	l := try(r.channel().CreateID(ib.CMIDInit{Type: ib.UD}))(r)
	r.must(l.Bind(netip.AddrPortFrom(r.gid.GID.Addr(), 0)))
	r.must(l.Listen(0))
	return try(l.Query())(r).Local
}

// asking creates an ID that asks for the datagram service at an address.
func (r *rig) asking(ch ib.CM, to netip.AddrPort, timeout time.Duration) ib.CMID {
	r.Helper()
	id := try(ch.CreateID(ib.CMIDInit{Type: ib.UD}))(r)
	r.must(id.ResolveAddr(netip.AddrPort{}, to, time.Second))
	r.event(ch, ib.CMAddrResolved)
	r.must(id.ResolveRoute(time.Second))
	r.event(ch, ib.CMRouteResolved)
	r.must(id.Connect(ib.CMConnParam{Timeout: timeout}))
	return id
}

// TestCMTimeout checks that a timeout of Connect may expire while its ID is being closed.
func TestCMTimeout(t *testing.T) {
	r := openRig(t)
	to, ch := r.silent(), r.channel()
	for i := range 50 {
		id := r.asking(ch, to, time.Duration(1+i%5)*100*time.Microsecond)
		if i%2 == 0 {
			if ev := r.event(ch, ib.CMUnreachable); ev.Status != -110 {
				t.Fatalf("status %d, want -110", ev.Status)
			}
		}
		r.must(id.Close())
	}
}

// TestCMTimeoutAfterEnd checks that a timeout that expires while the device is being closed, or later, does nothing.
func TestCMTimeoutAfterEnd(t *testing.T) {
	r := openRig(t)
	dev := try(Open(r.Attr().Name))(r)
	ch := try(dev.(ib.CMDevice).OpenCM())(r)
	id := r.asking(ch, r.silent(), time.Hour)
	r.must(dev.Close())
	id.(*cmID).expire() // as the timer does
	r.event(ch, ib.CMDeviceRemoval)
	if ev, err := ch.NextEvent(r.ctx); !errors.Is(err, ib.ErrClosed) {
		t.Errorf("event %v, %v; want none, and %v", ev.Type, err, ib.ErrClosed)
	}
	r.must(id.Close())
	r.must(ch.Close())
}

// TestCMGroups checks that an ID may join a group several times, that each join raises an event, and that each leave
// undoes one join and drops an event that is unread.
func TestCMGroups(t *testing.T) {
	r := openRig(t)
	if r.Attr().Caps&ib.CapMulticast == 0 {
		t.Skip("skipped: needs a device with multicast (rdma_rxe in tests/rxe is one)")
	}
	ch := r.channel()
	id := try(ch.CreateID(ib.CMIDInit{Type: ib.UD}))(r)
	r.must(id.Bind(netip.AddrPortFrom(r.gid.GID.Addr(), 0)))
	group, other := netip.MustParseAddr("239.1.2.3"), netip.MustParseAddr("239.1.2.4")
	join := func(to netip.Addr) {
		t.Helper()
		r.must(id.JoinMulticast(to))
		if ev := r.event(ch, ib.CMMulticastJoin); ev.Group != to {
			t.Fatalf("joined %v, want %v", ev.Group, to)
		}
	}
	for range 3 {
		join(group)
	}
	r.must(id.LeaveMulticast(group))
	r.must(id.JoinMulticast(group))
	require.Until(t, "the event of the join is in the queue", func() bool {
		c := ch.(*cmChannel)
		c.port.mu.Lock()
		defer c.port.mu.Unlock()
		return len(c.unread) == 1
	})
	for range 3 { // with the first the join whose event is unread is left; the others have none
		r.must(id.LeaveMulticast(group))
	}
	join(other)
	if err := id.LeaveMulticast(group); !errors.Is(err, ib.ErrInvalid) {
		t.Errorf("left a group once more than joined: %v, want %v", err, ib.ErrInvalid)
	}
}

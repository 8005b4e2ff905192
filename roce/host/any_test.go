package host_test

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce"
	"github.com/goroce/goroce/roce/daemon/client"
	"github.com/goroce/goroce/roce/daemon/server"
	"github.com/goroce/goroce/roce/host"
	"github.com/goroce/goroce/roce/link/port"
	"github.com/goroce/goroce/tests/linktest"
)

// here runs f in the namespace of the test.
func here(f func() error) error { return f() }

// serveDevices serves a device for each address, which it opens where in runs functions, at a socket that programs
// find.
func serveDevices(t *testing.T, in func(func() error) error, addrs ...netip.Addr) (path string) {
	t.Helper()
	var devices []roce.Device
	for _, a := range addrs {
		var dev roce.Device
		if err := in(func() (err error) {
			dev, err = host.Open(host.Options{Addrs: []netip.Addr{a}, Device: roce.Options{Name: a.String()}})
			return err
		}); err != nil {
			t.Fatal(err)
		}
		devices = append(devices, dev)
	}
	s, err := server.New(devices, server.Options{})
	if err != nil {
		t.Fatal(err)
	}
	path = filepath.Join(t.TempDir(), "s")
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: path, Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- s.Serve(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		err := <-served
		for _, dev := range devices {
			err = errors.Join(err, dev.Close())
		}
		if err := errors.Join(err, s.Close()); err != nil {
			t.Error(err)
		}
	})
	t.Setenv("GOROCED_SOCKET", path)
	return path
}

// TestAny: the daemon's device that has the addresses is taken, whichever it is; else one of the program's own.
func TestAny(t *testing.T) {
	first, second, own := linktest.Loopback(), linktest.Loopback(), linktest.Loopback()
	path := serveDevices(t, here, first, second)
	for _, c := range []struct {
		name string
		o    host.Options
		want string // name of the daemon's device; "" for an own one
	}{
		{"the first", host.Options{Addrs: []netip.Addr{first}}, first.String()},
		{"the second", host.Options{Addrs: []netip.Addr{second}}, second.String()},
		{"auto is no choice", host.Options{Addrs: []netip.Addr{second}, Link: "auto"}, second.String()},
		{"an address that it does not have", host.Options{Addrs: []netip.Addr{own}}, ""},
		{"what a daemon cannot have", host.Options{Addrs: []netip.Addr{own}, Shards: 1}, ""},
	} {
		dev, err := host.Any(t.Context(), c.o)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		d, daemons := dev.(*client.Device)
		if daemons != (c.want != "") || daemons && (dev.Attr().Name != c.want || d.Socket() != path) {
			t.Errorf("%s: got %T %s, want the daemon's %q", c.name, dev, dev.Attr().Name, c.want)
		}
		if err := dev.Close(); err != nil {
			t.Error(err)
		}
	}
	_, err := host.Any(t.Context(), host.Options{Addrs: []netip.Addr{first}, Shards: 1})
	if !errors.Is(err, port.ErrTaken) || strings.Contains(err.Error(), "--") {
		t.Errorf("the daemon's address, with an option that it cannot have: got %v, want %v, and no flag", err,
			port.ErrTaken)
	}
	if _, err := host.Any(t.Context(), host.Options{NetIf: "nosuch0"}); !errors.Is(err, host.ErrNoInterface) {
		t.Errorf("no such interface: got %v, want %v", err, host.ErrNoInterface)
	}
}

// TestAnyInterface: without an address the daemon's device on the interface that Open takes is taken, and where that is
// not clear the daemon's first.
func TestAnyInterface(t *testing.T) {
	a, _ := linktest.NewVeth(t, 1500)
	loopback := linktest.Loopback()
	serveDevices(t, a.Do, loopback, a.Addr4)
	for _, c := range []struct {
		do   string
		want netip.Addr
	}{{"true", a.Addr4}, {"ip link add other type veth peer name end; ip address add 10.98.0.1/24 dev other; " +
		"ip link set end up; ip link set other up", loopback}} {
		a.Command(t, "sh", "-c", c.do)
		var dev ib.Device
		if err := a.Do(func() (err error) {
			dev, err = host.Any(t.Context(), host.Options{})
			return err
		}); err != nil {
			t.Fatal(err)
		}
		if got := dev.Attr().Name; got != c.want.String() {
			t.Errorf("after %q: got %s, want %v", c.do, got, c.want)
		}
		if err := dev.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestFind: a client that names no socket finds the daemon as Find says.
func TestFind(t *testing.T) {
	path := serveDevices(t, here, linktest.Loopback())
	if got, err := client.Find(t.Context()); got != path || err != nil {
		t.Errorf("got %q, %v; want %q", got, err, path)
	}
	dev, err := client.Dial(t.Context(), client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := dev.Close(); err != nil || dev.Socket() != path {
		t.Errorf("got a device of %q, %v; want of %q", dev.Socket(), err, path)
	}
	t.Setenv("GOROCED_SOCKET", path+"-not")
	if _, err := client.Find(t.Context()); err == nil || !strings.Contains(err.Error(), path+"-not: there is no such") {
		t.Errorf("got %v, want why there is none", err)
	}
	if _, err := client.Dial(t.Context(), client.Options{}); err == nil || !strings.Contains(err.Error(),
		"name its socket by GOROCED_SOCKET") {
		t.Errorf("got %v, want what to do", err)
	}
}

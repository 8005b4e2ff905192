package server

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce"
	"github.com/goroce/goroce/roce/daemon/client"
	"github.com/goroce/goroce/roce/internal/device"
	"github.com/goroce/goroce/roce/link"
	"github.com/goroce/goroce/roce/link/udp"
	"github.com/goroce/goroce/roce/link/wrap"
	"github.com/goroce/goroce/tests/linktest"
)

// newServer returns a server of one device, and a socket for it.
func newServer(t *testing.T) (*Server, *net.UnixListener) {
	t.Helper()
	return newShardedServer(t, 1)
}

func newShardedServer(t *testing.T, shards int) (*Server, *net.UnixListener) {
	t.Helper()
	links, err := udp.OpenShards([]netip.Addr{linktest.Loopback()}, udp.Options{}, shards)
	must(t, err)
	for i, l := range links {
		links[i] = wrap.Seal(wrap.Loopback(l))
	}
	dev, err := device.OpenShards(links, device.Options{})
	must(t, err)
	s, err := New([]roce.Device{dev}, Options{})
	must(t, err)
	s.stuckAfter = time.Second / 2
	t.Cleanup(func() {
		must(t, dev.Close())
		must(t, s.Close())
	})
	listener, err := net.ListenUnix("unixpacket", &net.UnixAddr{Net: "unixpacket",
		Name: filepath.Join(t.TempDir(), "socket")})
	must(t, err)
	return s, listener
}

// serving runs a server for the duration of the test, and returns a client of it.
func serving(t *testing.T, adjust func(*Server)) *client.Device {
	t.Helper()
	s, listener := newServer(t)
	adjust(s)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx, listener) }()
	t.Cleanup(func() {
		cancel()
		must(t, <-ended)
	})
	c, err := client.Dial(t.Context(), client.Options{Socket: listener.Addr().String()})
	must(t, err)
	t.Cleanup(func() { c.Close() })
	return c
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// blind is a link that cannot watch a descriptor.
type blind struct{ link.Link }

func (blind) Watch(int) error { return errors.ErrUnsupported }

// TestClose checks that neither a closed server, nor one that could not be made, leaves an epoll instance open.
func TestClose(t *testing.T) {
	round := func() (instances int) {
		t.Run("round", func(t *testing.T) {
			newQP(t, serving(t, func(*Server) {}), ib.UD)
			l, err := udp.Open([]netip.Addr{linktest.Loopback()}, udp.Options{})
			must(t, err)
			dev, err := device.Open(blind{wrap.Loopback(l)}, device.Options{})
			must(t, err)
			if _, err := New([]roce.Device{dev}, Options{}); !errors.Is(err, errors.ErrUnsupported) {
				t.Errorf("a server of a link that cannot watch: %v, want %v", err, errors.ErrUnsupported)
			}
			must(t, dev.Close())
		})
		list, err := filepath.Glob("/proc/self/fd/*")
		must(t, err)
		for _, fd := range list {
			if what, _ := os.Readlink(fd); what == "anon_inode:[eventpoll]" {
				instances++
			}
		}
		return instances
	}
	if before, after := round(), round(); after != before { // the first one opens the runtime's own
		t.Errorf("%d epoll instances, want %d as before", after, before)
	}
}

package client

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/daemon/server"
	"github.com/goroce/goroce/roce/rdmacm"
	"github.com/goroce/goroce/tests/linktest"
)

// newCM returns the connection manager of a new client of a daemon.
func newCM(ctx context.Context, t *testing.T, d *daemon) *rdmacm.CM {
	t.Helper()
	dev, err := Dial(ctx, Options{Socket: d.socket})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dev.Close() })
	cm, err := rdmacm.Open(dev, rdmacm.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cm.Close() })
	return cm
}

// TestTooLong checks the errors for private data, and for reject information, that no message has room for.
func TestTooLong(t *testing.T) {
	for want, r := range map[string]ib.CMReject{
		"private data is 201 bytes":      {PrivateData: make([]byte, 201)},
		"reject information is 73 bytes": {Info: make([]byte, 73)},
	} {
		if err := new(cmID).Reject(r); !errors.Is(err, ib.ErrPrivateData) || !strings.Contains(err.Error(), want) ||
			!strings.Contains(err.Error(), "at most") {
			t.Errorf("%v, want %q refused", err, want)
		}
	}
}

// TestDial checks that clients of one daemon, and of two, connect to each other by address.
// Each client has its own rdmacm.CM on the one port of its daemon's device.
func TestDial(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	var addrs [2]netip.Addr
	var cms [4]*rdmacm.CM // two clients of each daemon
	for i := range 2 {
		d := newDaemon(t, server.Options{OwnProcesses: true})
		addrs[i] = d.dev.Link().Local[0].Addr()
		for j := range 2 {
			cms[2*i+j] = newCM(ctx, t, d)
		}
	}
	for i, cm := range cms {
		l, err := cm.Listen(ctx, fmt.Sprintf("%v:%d", addrs[i/2], 7000+i), rdmacm.ListenConfig{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() })
		go func() {
			for {
				c, err := l.Accept(ctx)
				if err != nil {
					return
				}
				defer c.Close()
			}
		}()
	}
	for i, cm := range cms {
		for j := range cms {
			c, err := cm.Dial(ctx, fmt.Sprintf("%v:%d", addrs[j/2], 7000+j), rdmacm.Config{})
			if err != nil {
				t.Fatalf("client %d to client %d: %v", i, j, err)
			}
			if err := c.Close(); err != nil {
				t.Errorf("client %d closing: %v", i, err)
			}
		}
	}
}

// TestListenByAddress checks that clients of one daemon can listen on the same port, each at an
// address of its own, and get the connections to that address.
func TestListenByAddress(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	d := newDaemon(t, server.Options{OwnProcesses: true})
	local := []ib.GID{d.dev.Link().Local[0], ib.GIDFromAddr(linktest.Loopback())}
	if err := d.dev.SetAddresses(local); err != nil {
		t.Fatal(err)
	}
	var cms [3]*rdmacm.CM // two listen; the third dials, or fails to listen as well
	for i := range cms {
		cms[i] = newCM(ctx, t, d)
	}
	addr := func(i int) string { return fmt.Sprintf("%v:7000", local[i].Addr()) }
	var listeners [2]*rdmacm.Listener
	for i := range listeners {
		l, err := cms[i].Listen(ctx, addr(i), rdmacm.ListenConfig{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() })
		listeners[i] = l
	}
	for _, addr := range []string{addr(0), addr(1)} {
		if _, err := cms[2].Listen(ctx, addr, rdmacm.ListenConfig{}); !errors.Is(err, ib.ErrBusy) {
			t.Errorf("a third client on %s: %v, want ErrBusy", addr, err)
		}
	}
	for _, i := range []int{0, 1, 1, 0} {
		accepted := make(chan error, 1)
		go func() {
			c, err := listeners[i].Accept(ctx)
			if err == nil {
				if at := c.LocalAddr().String(); at != addr(i) {
					t.Errorf("the listener got a connection to %s, want %s", at, addr(i))
				}
				err = c.Close()
			}
			accepted <- err
		}()
		c, err := cms[2].Dial(ctx, addr(i), rdmacm.Config{})
		if err != nil {
			t.Fatalf("dial %s: %v", addr(i), err)
		}
		if err := errors.Join(<-accepted, c.Close()); err != nil {
			t.Error(err)
		}
	}
	for _, l := range listeners {
		if _, err := cms[2].Listen(ctx, ":7000", rdmacm.ListenConfig{}); !errors.Is(err, ib.ErrBusy) {
			t.Errorf("on all addresses, beside others: %v, want ErrBusy", err)
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}
	l, err := cms[2].Listen(ctx, ":7000", rdmacm.ListenConfig{})
	if err != nil {
		t.Fatalf("on all addresses, alone: %v", err)
	}
	l.Close()
}

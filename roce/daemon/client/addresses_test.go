package client

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/daemon/server"
	"github.com/goroce/goroce/roce/rdmacm"
	"github.com/goroce/goroce/tests/linktest"
)

// hears waits until a client gets the event of a change, and checks its GID table.
func hears(ctx context.Context, t *testing.T, dev *Device, want []ib.GID) {
	t.Helper()
	if ev, err := dev.NextEvent(ctx); err != nil || ev.Type != ib.EventGIDChange {
		t.Fatalf("event %+v, %v; want a GID change", ev, err)
	}
	rows, err := dev.GIDs(1)
	if err != nil {
		t.Fatal(err)
	}
	var got []ib.GID
	for _, e := range rows {
		got = append(got, e.GID)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the client's GID table (-want +got):\n%s", diff)
	}
}

// TestAddressChange checks that a client gets an event when an address is added or removed,
// that the GID table changes, and that a listener on all addresses is reached at a new one.
func TestAddressChange(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	d := newDaemon(t, server.Options{OwnProcesses: true})
	first, later := d.dev.Link().Local[0], ib.GIDFromAddr(linktest.Loopback())
	dev, err := Dial(ctx, Options{Socket: d.socket})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dev.Close() })
	set := func(want ...ib.GID) {
		t.Helper()
		if err := d.dev.SetAddresses(want); err != nil {
			t.Fatal(err)
		}
		hears(ctx, t, dev, want)
	}
	set(first, later)
	set(first)
	cm, err := rdmacm.Open(dev, rdmacm.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cm.Close() })
	l, err := cm.Listen(ctx, ":7000", rdmacm.ListenConfig{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	other := newDaemon(t, server.Options{OwnProcesses: true})
	dial, err := rdmacm.Open(other.dev, rdmacm.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dial.Close() })

	for range 2 { // a new address, and then the same one again
		set(first, later)
		accepted := make(chan error, 1)
		go func() {
			c, err := l.Accept(ctx)
			if err == nil && c.LocalAddr().String() != fmt.Sprintf("%v:7000", later.Addr()) {
				err = fmt.Errorf("a connection to %v, want one to %v:7000", c.LocalAddr(), later.Addr())
			}
			accepted <- err
		}()
		c, err := dial.Dial(ctx, fmt.Sprintf("%v:7000", later.Addr()), rdmacm.Config{})
		if err != nil {
			t.Fatalf("dial the new address: %v", err)
		}
		if err := <-accepted; err != nil {
			t.Fatal(err)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		set(first)
	}
	if p, err := dev.QueryPort(1); err != nil || p.GIDTableLen != 2 {
		t.Errorf("%d rows, %v; want 2, one of them empty", p.GIDTableLen, err)
	}
}

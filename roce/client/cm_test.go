package client

import (
	"context"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/goroce/goroce/roce/rdmacm"
	"github.com/goroce/goroce/roce/server"
)

// TestDial: clients of one daemon, and of another, find each other by address, each
// with a connection manager of its own, on the one port of their daemon's device.
func TestDial(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	var addrs [2]netip.Addr
	var cms [4]*rdmacm.CM // two clients of each daemon
	for i := range 2 {
		d := newDaemon(t, server.Options{OwnProcesses: true})
		addrs[i] = d.dev.Link().Local[0].Addr()
		for j := range 2 {
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
			cms[2*i+j] = cm
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

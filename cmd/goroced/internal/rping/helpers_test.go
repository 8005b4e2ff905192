package rping

import (
	"context"
	"io"
	"net/netip"
	"strconv"
	"testing"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce"
	"github.com/goroce/goroce/roce/link/mem"
	"github.com/goroce/goroce/roce/link/wrap"
	"github.com/goroce/goroce/roce/rdmacm"
	"github.com/goroce/goroce/tests/toolstest"
)

// memDevice opens a device on a network in memory.
func memDevice(t *testing.T, network *mem.Network, addr string) ib.Device {
	t.Helper()
	l := network.Open([]ib.GID{ib.GIDFromAddr(netip.MustParseAddr(addr))}, mem.Options{})
	dev, err := roce.Open(wrap.Seal(wrap.Loopback(l)), roce.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dev.Close() })
	return dev
}

// start begins an end.
func start(t *testing.T, dev ib.Device, o Options) *toolstest.End {
	t.Helper()
	return toolstest.Start(t, func(ctx context.Context, out, log io.Writer) error {
		o.Out, o.Log = out, log
		return Run(ctx, dev, o)
	})
}

// startServer begins a server and returns its options for clients.
func startServer(t *testing.T, dev ib.Device, o Options) (*toolstest.End, Options) {
	t.Helper()
	o.Server, o.Port = true, 0
	server := start(t, dev, o)
	port, err := strconv.Atoi(server.Await(t, server.Log, `waiting for a client on \S+:(\d+):`)[1])
	if err != nil {
		t.Fatal(err)
	}
	o.Server, o.Persistent, o.Addr, o.Port = false, false, toolstest.Addr(t, dev).String(), port
	return server, o
}

// connect returns a client that is connected and does what the test says.
func connect(t *testing.T, dev ib.Device, o Options) *client {
	t.Helper()
	cm, err := rdmacm.Open(dev, rdmacm.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cm.Close() })
	o.Log = toolstest.NewOutput()
	c, err := newClient(dev, &o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if err := c.connect(t.Context(), cm); err != nil {
		t.Fatal(err)
	}
	return c
}

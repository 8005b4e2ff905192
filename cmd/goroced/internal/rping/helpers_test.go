package rping

import (
	"context"
	"io"
	"strconv"
	"testing"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/rdmacm"
	"github.com/goroce/goroce/tests/toolstest"
)

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

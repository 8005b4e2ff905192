package rstream

import (
	"context"
	"io"
	"strconv"
	"testing"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce"
	"github.com/goroce/goroce/roce/link/wrap"
	"github.com/goroce/goroce/roce/rdmacm"
	"github.com/goroce/goroce/roce/rsocket"
	"github.com/goroce/goroce/tests/toolstest"
)

// opener opens a device for an end.
type opener = func(wrap.FaultConfig) roce.Device

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
	o.Port = 0
	server := start(t, dev, o)
	port, err := strconv.Atoi(server.Await(t, server.Log, `waiting for a client on \S+:(\d+):`)[1])
	if err != nil {
		t.Fatal(err)
	}
	o.Server, o.Port = toolstest.Addr(t, dev).String(), port
	return server, o
}

// dial returns a connection that does what the test says.
func dial(t *testing.T, dev ib.Device, o Options) *rsocket.Conn {
	t.Helper()
	cm, err := rdmacm.Open(dev, rdmacm.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cm.Close() })
	conn, err := rsocket.Dial(t.Context(), cm, o.hostPort(o.Server), o.socket())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

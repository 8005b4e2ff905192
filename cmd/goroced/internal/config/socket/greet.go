package socket

import (
	"context"
	"errors"
	"fmt"
	"net"
	"syscall"
	"time"

	"github.com/goroce/goroce/roce/daemon/abi"
)

// Greeting is the first message of a daemon to a client.
type Greeting struct {
	Version int      // of the protocol: see package abi
	Devices []string // the first one is the default
}

// Greet reads the greeting of a daemon from a connection to its client socket, which cannot be used for anything else
// afterwards. It waits until ctx ends.
func Greet(ctx context.Context, conn *net.UnixConn) (Greeting, error) {
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	c := abi.NewConn(conn)
	hello := abi.Hello{Magic: abi.Magic, MinVersion: abi.Version, MaxVersion: abi.Version}
	var h abi.Header
	var body []byte
	err := c.Send(abi.Header{Op: abi.OpHello}, abi.Put(nil, &hello))
	if err == nil || errors.Is(err, syscall.EPIPE) { // a daemon that refuses at once has said why
		var fds []int
		h, body, fds, err = c.Receive()
		abi.CloseAll(fds)
	}
	switch {
	case err != nil && ctx.Err() != nil:
		return Greeting{}, fmt.Errorf("%v: no answer: %w", abi.OpHello, context.Cause(ctx))
	case err != nil:
		return Greeting{}, fmt.Errorf("%v: %w", abi.OpHello, err)
	case h.Status != abi.OK:
		return Greeting{}, abi.GetError(body, h.Status)
	}
	r, err := abi.Get[abi.HelloReply](body)
	if err != nil {
		return Greeting{}, err
	}
	g := Greeting{Version: int(r.Version)}
	for i := range min(r.Devices, abi.MaxDevices) {
		g.Devices = append(g.Devices, r.Names[i].String())
	}
	return g, nil
}

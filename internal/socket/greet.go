package socket

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"time"

	"github.com/goroce/goroce/roce/daemon/abi"
)

// Greeting is the first message of a daemon to a client.
type Greeting struct {
	Version int      // of the protocol: see package abi
	Devices []string // the first one is the default
}

// Greet reads the greeting of a daemon from a connection to its client socket, which can be used only for Hold
// afterwards. It waits until ctx ends.
func Greet(ctx context.Context, conn *net.UnixConn) (Greeting, error) {
	hello := abi.Hello{Magic: abi.Magic, MinVersion: abi.Version, MaxVersion: abi.Version}
	body, fds, err := ask(ctx, conn, abi.OpHello, abi.Put(nil, &hello))
	abi.CloseAll(fds)
	if err != nil {
		return Greeting{}, err
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

// Hold asks a daemon that has been greeted for a hold, and closes the connection. The daemon does not end by idle_exit
// as long as anybody has the hold open, which is of no other use. It is close-on-exec. Hold waits until ctx ends.
func Hold(ctx context.Context, conn *net.UnixConn) (*os.File, error) {
	defer conn.Close()
	_, fds, err := ask(ctx, conn, abi.OpHold, nil)
	if err != nil {
		return nil, err
	}
	if len(fds) != 1 {
		abi.CloseAll(fds)
		return nil, fmt.Errorf("%v: %d descriptors came, not 1: %w", abi.OpHold, len(fds), io.ErrUnexpectedEOF)
	}
	return os.NewFile(uintptr(fds[0]), "hold"), nil
}

// ask sends a request, and returns the body of the reply and its descriptors.
func ask(ctx context.Context, conn *net.UnixConn, op abi.Op, body []byte) ([]byte, []int, error) {
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	c := abi.NewConn(conn)
	var h abi.Header
	var reply []byte
	var fds []int
	err := c.Send(abi.Header{Op: op}, body)
	if err == nil || errors.Is(err, syscall.EPIPE) { // a daemon that refuses at once has said why
		h, reply, fds, err = c.Receive()
	}
	switch {
	case err != nil && ctx.Err() != nil:
		err = fmt.Errorf("%v: no answer: %w", op, context.Cause(ctx))
	case err != nil:
		err = fmt.Errorf("%v: %w", op, err)
	case h.Status == abi.NotSupported:
		err = fmt.Errorf("%w; end the daemon, and install the same goroced for both", abi.GetError(reply, h.Status))
	case h.Status != abi.OK:
		err = abi.GetError(reply, h.Status)
	}
	if err != nil {
		abi.CloseAll(fds)
		return nil, nil, err
	}
	return reply, fds, nil
}

//go:build linux

package dropin

import (
	"context"
	"errors"
	"fmt"
	"net"
	"testing"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/daemon/client"
	"github.com/goroce/goroce/roce/rdmacm"
)

// BenchmarkConnect connects and disconnects over one daemon: a program in C by librdmacm, and one in Go.
func BenchmarkConnect(b *testing.B) {
	b.Run("C", func(b *testing.B) {
		program := compile(b, "../rxe/testdata/cmtool.c", "-lrdmacm", "-libverbs")
		h := newHost(b, nil)
		server := h.run(b, program, "tcp", "serve", "7174", fmt.Sprint(b.N))
		h.awaitListener(b, server)
		b.ResetTimer()
		h.run(b, program, "tcp", "churn", h.addr.String(), "7174", fmt.Sprint(b.N)).ok(b)
		server.ok(b)
	})
	b.Run("Go", func(b *testing.B) { newHost(b, nil).churnGo(b, b.N, b.ResetTimer) })
}

// churnGo connects and disconnects n times, between two clients in Go.
func (h *host) churnGo(t testing.TB, n int, begin func()) {
	t.Helper()
	at := h.addr.String() + ":7174"
	server, there := openGo(t, h)
	l, err := server.Listen(t.Context(), at, rdmacm.ListenConfig{Config: there})
	if err != nil {
		t.Fatal(err)
	}
	dialer, here := openGo(t, h)
	done := make(chan error, 1)
	go func() { done <- answer(t.Context(), l, n) }()
	begin()
	for range n {
		conn, err := dialer.Dial(t.Context(), at, here)
		if err == nil {
			err = errors.Join(conn.Disconnect(t.Context()), conn.Close())
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

// openGo opens the daemon's device as a program in Go, with queues as small as those of cmtool.
func openGo(t testing.TB, h *host) (*rdmacm.CM, rdmacm.Config) {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	conn, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: h.socket, Net: "unixpacket"})
	must(err)
	dev, err := client.New(t.Context(), conn, "")
	must(err)
	t.Cleanup(func() { _ = dev.Close() })
	cm, err := rdmacm.Open(dev, rdmacm.Options{})
	must(err)
	t.Cleanup(func() { _ = cm.Close() })
	pd, err := dev.AllocPD()
	must(err)
	cq, err := dev.CreateCQ(ib.CQInit{Entries: 1})
	must(err)
	return cm, rdmacm.Config{PD: pd, SendCQ: cq,
		Cap: ib.QPCap{MaxSendWR: 1, MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1}}
}

// answer accepts connections, and closes each when the peer disconnects.
func answer(ctx context.Context, l *rdmacm.Listener, n int) error {
	for range n {
		conn, err := l.Accept(ctx)
		if err != nil {
			return err
		}
		<-conn.Done()
		if err := conn.Close(); err != nil {
			return err
		}
	}
	return nil
}

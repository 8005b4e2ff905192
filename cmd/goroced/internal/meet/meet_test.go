package meet

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/goroce/goroce/tests/linktest"
)

func command(args string) string { return "`tool" + args + "`" }

// port returns a TCP port that nobody listens on.
func port(t *testing.T) int {
	t.Helper()
	return linktest.Port(t)
}

// pair returns both ends of a connection; the server's ends with ctx.
func pair(ctx context.Context, t *testing.T) (server, client *Conn) {
	t.Helper()
	o := Options{Port: port(t), Timeout: time.Minute, Command: command}
	listening, accepted, failed := make(chan struct{}), make(chan *Conn, 1), make(chan error, 1)
	o.Listening = func() { close(listening) }
	go func() {
		c, err := Connect(ctx, o)
		if err != nil {
			failed <- err
			return
		}
		accepted <- c
	}()
	select {
	case <-listening:
	case err := <-failed:
		t.Fatal(err)
	}
	o.Host = "127.0.0.1"
	client, err := Connect(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	select {
	case server = <-accepted:
		t.Cleanup(func() { server.Close() })
	case err := <-failed:
		t.Fatal(err)
	}
	return server, client
}

// TestMessages: what one end sends the other receives, whole, and each knows its address.
func TestMessages(t *testing.T) {
	server, client := pair(t.Context(), t)
	for _, way := range [][2]*Conn{{server, client}, {client, server}} {
		for _, part := range []string{"hel", "lo, there"} {
			if err := way[0].Send([]byte(part)); err != nil {
				t.Fatal(err)
			}
		}
		if err := way[1].Await(); err != nil {
			t.Fatal(err)
		}
		msg := make([]byte, len("hello, there"))
		if err := way[1].Receive(msg); err != nil || string(msg) != "hello, there" {
			t.Errorf("received %q, %v; want %q", msg, err, "hello, there")
		}
		if got := way[0].LocalIP(); got != netip.MustParseAddr("127.0.0.1") {
			t.Errorf("local address %v, want %v", got, netip.MustParseAddr("127.0.0.1"))
		}
	}
}

// TestLimit: a peer that says too little in time is an error that tells how much it said; without a limit it is
// waited for again.
func TestLimit(t *testing.T) {
	server, client := pair(t.Context(), t)
	if err := client.Send([]byte("four")); err != nil {
		t.Fatal(err)
	}
	if err := server.Await(); err != nil { // now all four are there
		t.Fatal(err)
	}
	server.Limit(time.Millisecond)
	err := server.Receive(make([]byte, 5))
	if !errors.Is(err, ErrExchange) || !errors.Is(err, os.ErrDeadlineExceeded) || !strings.Contains(err.Error(),
		"4 of 5 bytes") {
		t.Errorf("error %v, want %v, %v and %q", err, ErrExchange, os.ErrDeadlineExceeded, "4 of 5 bytes")
	}
	server.Limit(0)
	if err := client.Send([]byte("more")); err != nil {
		t.Fatal(err)
	}
	if err := server.Receive(make([]byte, 4)); err != nil {
		t.Error(err)
	}
	client.Close()
	if err := server.Await(); err == nil {
		t.Error("the end of the connection goes unnoticed")
	}
}

// TestContextEnds: the end of the context ends the wait for a client, and a connection that is there.
func TestContextEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	_, err := Connect(ctx, Options{Port: port(t), Listening: cancel, Command: command})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("while it waited: error %v, want %v", err, context.Canceled)
	}
	ctx, cancel = context.WithCancel(t.Context())
	server, client := pair(ctx, t)
	cancel()
	if err := server.Await(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("at the end that was stopped: error %v, want %v", err, net.ErrClosed)
	}
	if err := client.Receive(make([]byte, 1)); !errors.Is(err, ErrExchange) {
		t.Errorf("at the other end: error %v, want %v", err, ErrExchange)
	}
}

// endsUnseen is a context that ends without closing Done, as one does that ends after Accept.
type endsUnseen struct {
	context.Context
	ended bool
}

func (c *endsUnseen) Err() error {
	if c.ended {
		return context.Canceled
	}
	return nil
}

// TestContextEndsAfterAccept: a connection that came just before the end is closed.
func TestContextEndsAfterAccept(t *testing.T) {
	ctx := &endsUnseen{Context: context.Background()}
	o := Options{Port: port(t), Command: command}
	var client net.Conn
	o.Listening = func() {
		var err error
		if client, err = net.Dial("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(o.Port))); err != nil {
			t.Error(err)
		}
		ctx.ended = true
	}
	if _, err := Connect(ctx, o); !errors.Is(err, context.Canceled) {
		t.Fatalf("error %v, want %v", err, context.Canceled)
	}
	defer client.Close()
	if err := client.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if _, err := client.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("the client reads: %v, want %v", err, io.EOF)
	}
}

// TestNobodyThere: the errors say what to do.
func TestNobodyThere(t *testing.T) {
	o := Options{Host: "127.0.0.1", Port: port(t), Timeout: time.Minute, Command: command}
	if _, err := Connect(t.Context(), o); err == nil || !strings.Contains(err.Error(), "start it there first: `tool`") {
		t.Errorf("nobody listens: error %v, want %q", err, "start it there first: `tool`")
	}
	l, err := net.Listen("tcp", ":0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	o.Host, o.Port = "", l.Addr().(*net.TCPAddr).Port
	if _, err := Connect(t.Context(), o); err == nil || !strings.Contains(err.Error(), "choose a port with -p") {
		t.Errorf("the port is taken: error %v, want %q", err, "choose a port with -p")
	}
}

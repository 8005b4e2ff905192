package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/daemon/abi"
	"github.com/goroce/goroce/tests/require"
)

// byHand runs a server for the duration of the test, and returns a function that connects to it.
func byHand(t *testing.T, adjust func(*Server)) (s *Server, dial func() *abi.Conn) {
	t.Helper()
	s, listener := newServer(t)
	adjust(s)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	// A connection tells who sends if its listener does when it is made, so this one does before there is any.
	local, err := abi.Listen(listener)
	must(t, err)
	go func() { ended <- s.ServeListener(ctx, local) }()
	t.Cleanup(func() {
		cancel()
		must(t, <-ended)
	})
	return s, func() *abi.Conn {
		c, err := net.DialUnix("unixpacket", nil, listener.Addr().(*net.UnixAddr))
		must(t, err)
		t.Cleanup(func() { c.Close() })
		must(t, c.SetDeadline(time.Now().Add(30*time.Second)))
		return abi.NewConn(c)
	}
}

// call sends a request and returns the answer to it.
func call(t *testing.T, c *abi.Conn, op abi.Op, body []byte) error {
	t.Helper()
	must(t, c.Send(abi.Header{Op: op, Seq: uint32(op)}, body))
	return answered(t, c, op)
}

// answered receives the answer to a request.
func answered(t *testing.T, c *abi.Conn, op abi.Op) error {
	t.Helper()
	h, text, fds, err := c.Receive()
	must(t, err)
	abi.CloseAll(fds)
	if h.Op != op || h.Seq != uint32(op) {
		t.Fatalf("answered by %v %d, want %v %[2]d", h.Op, h.Seq, op)
	}
	if h.Status != abi.OK {
		return abi.GetError(text, h.Status)
	}
	return nil
}

// begin sends hello and opens the device.
func begin(t *testing.T, c *abi.Conn) {
	t.Helper()
	must(t, call(t, c, abi.OpHello, abi.Put(nil, &abi.Hello{Magic: abi.Magic, MinVersion: abi.Version,
		MaxVersion: abi.Version})))
	must(t, call(t, c, abi.OpOpen, abi.Put(nil, &abi.Open{})))
}

// TestRefusedAtOnce checks that a connection beyond the limit gets the reason and is closed before
// it sends anything, so that it occupies no descriptor; if it sends hello it gets the same answer.
func TestRefusedAtOnce(t *testing.T) {
	s, dial := byHand(t, func(s *Server) { s.SetLimits(Limits{}, Limits{Connections: 1}) })
	begin(t, dial())
	for _, speaks := range []bool{false, true} {
		for range 3 * mostRefused {
			c := dial()
			if speaks {
				err := c.Send(abi.Header{Op: abi.OpHello, Seq: 1}, nil)
				if err != nil && !errors.Is(err, unix.EPIPE) {
					t.Fatal(err)
				}
			}
			h, text, _, err := c.Receive()
			must(t, err)
			if why := abi.GetError(text, h.Status); h.Op != abi.OpHello || h.Seq != 0 || !errors.Is(why, ib.ErrLimit) {
				t.Fatalf("refused with %+v, %v; want %v 0, %v", h, why, abi.OpHello, ib.ErrLimit)
			}
			if _, _, _, err := c.Receive(); !errors.Is(err, io.EOF) {
				t.Fatalf("after the refusal: %v, want the end of the connection", err)
			}
		}
	}
	require.Until(t, "one connection is left", func() bool {
		s.accounts.mu.Lock()
		defer s.accounts.mu.Unlock()
		return len(s.accounts.users) == 1 && s.Clients() == 1
	})
}

// TestInFlight checks that, if the kernel allows no more descriptors in flight, the client's request
// is answered with that error, the new object is closed, and the session goes on.
func TestInFlight(t *testing.T) {
	var full atomic.Bool
	var s *Server
	dev := serving(t, func(server *Server) {
		s = server
		s.send = func(c *abi.Conn, h abi.Header, body []byte, fds ...int) error {
			if full.Load() && len(fds) > 0 {
				return fmt.Errorf("%v: %w", h.Op, unix.ETOOMANYREFS)
			}
			return c.Send(h, body, fds...)
		}
	})
	makers := map[string]func() (interface{ Close() error }, error){
		"a completion channel": func() (interface{ Close() error }, error) { return dev.CreateChannel() },
		"an event channel":     func() (interface{ Close() error }, error) { return dev.OpenCM() },
	}
	for what, make := range makers {
		before := fmt.Sprint(s.Usage())
		full.Store(true)
		if _, err := make(); !errors.Is(err, ib.ErrLimit) {
			t.Errorf("%s that cannot be sent: %v, want ErrLimit", what, err)
		}
		full.Store(false)
		if after := fmt.Sprint(s.Usage()); after != before {
			t.Errorf("%s that cannot be sent is booked: %s, want %s as before", what, after, before)
		}
		o, err := make()
		if err != nil {
			t.Fatalf("%s, when there is room again: %v", what, err)
		}
		must(t, o.Close())
	}
	if _, err := dev.CreateCQ(ib.CQInit{Entries: 4}); err != nil {
		t.Errorf("after that: %v", err)
	}
}

// TestInFlightAtOpen is TestInFlight for a reply whose descriptors the session needs: it ends.
func TestInFlightAtOpen(t *testing.T) {
	for _, op := range []abi.Op{abi.OpOpen, abi.OpShareDoorbells} {
		s, dial := byHand(t, func(s *Server) {
			s.send = func(c *abi.Conn, h abi.Header, body []byte, fds ...int) error {
				if h.Op == op && len(fds) > 0 {
					return fmt.Errorf("%v: %w", h.Op, unix.ETOOMANYREFS)
				}
				return c.Send(h, body, fds...)
			}
		})
		c := dial()
		greet(t, c)
		err := call(t, c, abi.OpOpen, abi.Put(nil, &abi.Open{}))
		if op == abi.OpShareDoorbells {
			must(t, err)
			memory, _ := newSharedMemory(t)
			must(t, c.Send(abi.Header{Op: op, Seq: uint32(op)}, nil, memory))
			err = answered(t, c, op)
		}
		if !errors.Is(err, ib.ErrLimit) {
			t.Errorf("%v that cannot be answered: %v, want ErrLimit", op, err)
		}
		require.Until(t, "the session ends", func() bool { return s.Clients() == 0 })
	}
}

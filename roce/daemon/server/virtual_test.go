package server

import (
	"context"
	"errors"
	"io"
	"net/netip"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce"
	"github.com/goroce/goroce/roce/daemon/abi"
	"github.com/goroce/goroce/roce/daemon/client"
	"github.com/goroce/goroce/roce/simtest"
)

// virtual is a server on a host of a simulation. Package daemontest, which tests of other packages use, imports this
// one.
type virtual struct {
	*Server
	t     *testing.T
	local *abi.Local
	stop  context.CancelFunc
	ended chan error // has the error of Serve
}

// inVirtualTime runs f with a server in virtual time.
func inVirtualTime(t *testing.T, f func(t *testing.T, v *virtual)) {
	simtest.Run(t, simtest.Config{}, func(t *testing.T, n *simtest.Net) {
		h := n.Hosts[0]
		s, err := New([]roce.Device{h.Device()}, Options{})
		must(t, err)
		ctx, cancel := context.WithCancel(context.Background())
		v := &virtual{Server: s, t: t, local: abi.NewLocal(h.Tell), stop: cancel, ended: make(chan error, 1)}
		go func() {
			v.ended <- s.ServeListener(ctx, v.local)
			close(v.ended)
		}()
		h.OnClose(func() func() {
			cancel()
			must(t, <-v.ended)
			return func() { must(t, s.Close()) }
		})
		f(t, v)
	})
}

// dial connects to the server.
func (v *virtual) dial() *abi.Conn {
	v.t.Helper()
	c, err := v.local.Dial(v.t.Context())
	must(v.t, err)
	v.t.Cleanup(func() { c.Close() })
	return c
}

// open connects a client with a device.
func (v *virtual) open() *client.Device {
	v.t.Helper()
	d, err := client.Open(v.t.Context(), v.dial(), "")
	must(v.t, err)
	return d
}

// takes checks that f takes that much virtual time.
func takesTime(t *testing.T, what string, want time.Duration, f func()) {
	t.Helper()
	start := time.Now()
	f()
	if took := time.Since(start); took != want {
		t.Errorf("%s took %v, want %v", what, took, want)
	}
}

// TestAwaitIdle: the wait ends so long after the last client has left, and not while one is there.
func TestAwaitIdle(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		for _, stay := range []struct{ from, to time.Duration }{
			{30 * time.Second, 200 * time.Second}, {50 * time.Second, 130 * time.Second},
			{230 * time.Second, 231 * time.Second},
		} {
			time.AfterFunc(stay.from, func() {
				c := v.dial()
				begin(t, c)
				time.Sleep(stay.to - stay.from)
				must(t, c.Close())
			})
		}
		takesTime(t, "to get idle", 291*time.Second, func() { must(t, v.AwaitIdle(t.Context(), time.Minute)) })
		c := v.dial()
		if _, _, _, err := c.Receive(); !errors.Is(err, io.EOF) || v.Clients() != 0 {
			t.Errorf("a client that connects then: got %v, want %v", err, io.EOF)
		}
	})
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		begin(t, v.dial())
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		defer cancel()
		if err := v.AwaitIdle(ctx, time.Minute); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("with a client: got %v, want %v", err, context.DeadlineExceeded)
		}
	})
}

// TestDrain: Drain waits until the last client has left, and lets no other in.
func TestDrain(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		first, second := v.dial(), v.dial()
		begin(t, first)
		begin(t, second)
		time.AfterFunc(time.Minute, func() { must(t, first.Close()) })
		time.AfterFunc(2*time.Minute, func() { must(t, second.Close()) })
		time.AfterFunc(time.Second, func() {
			if _, err := v.local.Dial(t.Context()); !errors.Is(err, unix.ECONNREFUSED) {
				t.Errorf("a client that connects meanwhile: got %v, want %v", err, unix.ECONNREFUSED)
			}
		})
		takesTime(t, "to drain", 2*time.Minute, func() { must(t, v.Drain(t.Context())) })
	})
}

// TestUnreadReplies checks that a client that does not read its replies gets no more descriptors,
// which would stay in flight, and that other clients are not affected.
func TestUnreadReplies(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		c, other := v.dial(), v.dial()
		begin(t, c)
		begin(t, other)
		const asked = 50
		for range asked {
			must(t, c.Send(abi.Header{Op: abi.OpCreateChannel, Seq: uint32(abi.OpCreateChannel)}, nil))
		}
		time.Sleep(unreadLimit - time.Second)
		takesTime(t, "a request of another client", 0, func() { must(t, call(t, other, abi.OpClock, nil)) })
		if n := v.Usage()[0].Amount["channels"]; n != 2 {
			t.Errorf("%d channels were made for a client that reads no reply; want 1, and one that waits", n)
		}
		for i := range asked {
			if err := answered(t, c, abi.OpCreateChannel); err != nil {
				t.Fatalf("channel %d, when the client reads: %v", i+1, err)
			}
		}
	})
}

// TestUnreadLimit: a client that does not read its replies for unreadLimit, and asks for descriptors, is dropped.
func TestUnreadLimit(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		c := v.dial()
		begin(t, c)
		for range 3 {
			must(t, c.Send(abi.Header{Op: abi.OpCreateChannel}, nil))
		}
		time.Sleep(unreadLimit - time.Millisecond)
		if v.Clients() != 1 {
			t.Errorf("the client is dropped before %v", unreadLimit)
		}
		time.Sleep(time.Second / 2) // the session looks each quarter of a second
		if v.Clients() != 0 || len(v.Usage()) != 0 {
			t.Errorf("after %v there are %d clients, who hold %v; want none", unreadLimit, v.Clients(), v.Usage())
		}
	})
}

// TestUnreadEnds: a session that waits for its client to read ends at once with the connection, or with the server.
func TestUnreadEnds(t *testing.T) {
	for what, end := range map[string]func(*virtual, *abi.Conn){
		"the client goes": func(v *virtual, c *abi.Conn) { must(v.t, c.Close()) },
		"the server ends": func(v *virtual, _ *abi.Conn) { v.stop() },
	} {
		inVirtualTime(t, func(t *testing.T, v *virtual) {
			c := v.dial()
			begin(t, c)
			for range 3 {
				must(t, c.Send(abi.Header{Op: abi.OpCreateChannel}, nil))
			}
			time.Sleep(time.Second)
			end(v, c)
			time.Sleep(time.Second)
			if v.Clients() != 0 || len(v.Usage()) != 0 {
				t.Errorf("%s: a second later there are %d clients, who hold %v; want none", what, v.Clients(),
					v.Usage())
			}
		})
	}
}

// TestTakeLimit: a client whose message brings descriptors is dropped if those of earlier messages do not close within
// takeLimit; until then only it waits.
func TestTakeLimit(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		c, other := v.dial(), v.dial()
		begin(t, c)
		begin(t, other)
		release := make(chan struct{})
		defer close(release)
		user := v.accounts.users[uint32(os.Getuid())]
		for range mostWorkers {
			user.closer.closeConn(func() { <-release })
		}
		memory, _ := newSharedMemory(t)
		must(t, c.Send(abi.Header{Op: abi.OpShareMemory}, nil, memory))
		time.Sleep(takeLimit - time.Nanosecond)
		must(t, call(t, other, abi.OpClock, nil))
		if v.Clients() != 2 {
			t.Errorf("before %v there are %d clients, want 2", takeLimit, v.Clients())
		}
		time.Sleep(2 * time.Nanosecond)
		if v.Clients() != 1 {
			t.Errorf("after %v there are %d clients, want the other one", takeLimit, v.Clients())
		}
	})
}

// hang makes sessions hang in requests for the clock, until the function that it returns is called.
func hang(t *testing.T) (release func()) {
	t.Helper()
	usual, released := handlers[abi.OpClock], make(chan struct{})
	handlers[abi.OpClock] = func(*session, []byte, []int) (reply, error) {
		<-released
		return reply{}, ib.ErrClosed
	}
	return func() {
		close(released)
		handlers[abi.OpClock] = usual
	}
}

// TestHangingSession checks that the server ends although the goroutine of a session hangs, after endLimit, and
// names the session's process in its error.
func TestHangingSession(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		release := hang(t)
		dev := v.open()
		asked := make(chan struct{})
		go func() {
			_, _ = dev.Clock()
			close(asked)
		}()
		time.Sleep(time.Second)
		v.stop()
		takesTime(t, "the end of the server", endLimit, func() {
			if err := <-v.ended; !errors.Is(err, errStuck) {
				t.Errorf("the server ends with %v, want %v", err, errStuck)
			}
		})
		release()
		<-asked
		time.Sleep(time.Second)
		if v.Clients() != 0 {
			t.Error("the session is still there when it hangs no longer")
		}
	})
}

// TestPatience: a client gives up a daemon that does not answer within 30 seconds, and what its goroutines wait for
// ends, too.
func TestPatience(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		release := hang(t)
		defer release()
		dev := v.open()
		waited := make(chan error, 1)
		go func() {
			_, err := dev.NextEvent(t.Context())
			waited <- err
		}()
		asked := make(chan error, 2)
		takesTime(t, "requests that are not answered", 30*time.Second, func() {
			for range cap(asked) { // the second waits for the first
				go func() {
					_, err := dev.Clock()
					asked <- err
				}()
			}
			for range cap(asked) {
				if err := <-asked; !errors.Is(err, client.ErrGone) {
					t.Errorf("got %v, want %v", err, client.ErrGone)
				}
			}
		})
		if err := <-waited; !errors.Is(err, client.ErrGone) {
			t.Errorf("who waits for an event: got %v, want %v", err, client.ErrGone)
		}
	})
}

// TestUnreadEvents: events of a client that does not read them for long wait for it, each of them once, behind those
// that its socket has taken.
func TestUnreadEvents(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		c, dev := v.dial(), v.units[0].dev
		greet(t, c)
		_, fds, err := tell[abi.OpenReply](t, c, abi.OpOpen, abi.Open{})
		must(t, err)
		events := c.NewFile(fds[0], "events")
		defer events.Close()
		for range 1000 {
			dev.SetPortState(ib.PortDown)
			dev.SetPortState(ib.PortActive)
			time.Sleep(time.Millisecond)
		}
		must(t, dev.SetAddresses(append(dev.Link().Local, ib.GIDFromAddr(netip.MustParseAddr("192.0.2.77")))))
		time.Sleep(time.Minute)
		var got []ib.EventType
		for buf := make([]byte, 64); abi.Poll(fds[0], unix.POLLIN) != 0; time.Sleep(time.Millisecond) {
			n, err := events.Read(buf)
			must(t, err)
			e, err := abi.Get[abi.Event](buf[:n])
			must(t, err)
			got = append(got, ib.EventType(e.Type))
		}
		if len(got) < 4 || len(got) > 100 || got[len(got)-1] != ib.EventGIDChange {
			t.Errorf("got %v; want some port events, and then %v", got, ib.EventGIDChange)
		}
	})
}

// TestLeavesNothing: a client that dies leaves nothing, also at the connection manager.
func TestLeavesNothing(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		for range 3 {
			dev := v.open()
			cm, err := dev.OpenCM()
			must(t, err)
			id, err := cm.CreateID(ib.CMIDInit{Space: ib.PortSpaceTCP, Type: ib.RC})
			must(t, err)
			must(t, id.Bind(netip.AddrPortFrom(v.units[0].dev.Link().Local[0].Addr(), 7471)))
			must(t, id.Listen(1))
			must(t, dev.Close())
			time.Sleep(time.Second)
			u := v.units[0]
			if v.Clients() != 0 || len(v.Usage()) != 0 || len(u.sessions) != 0 || len(v.cm.owners) != 0 {
				t.Errorf("%d clients, who hold %v, are left, %d sessions on the device, and %d users of the "+
					"connection manager", v.Clients(), v.Usage(), len(u.sessions), len(v.cm.owners))
			}
		}
	})
}

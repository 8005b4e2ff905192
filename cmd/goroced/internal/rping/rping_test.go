package rping

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce"
	"github.com/goroce/goroce/roce/link/wrap"
	"github.com/goroce/goroce/roce/rdmacm"
	"github.com/goroce/goroce/tests/linktest"
	"github.com/goroce/goroce/tests/toolstest"
)

// printed is what an end prints with -v.
func printed(prefix string, count, size int) string {
	var b strings.Builder
	for n := range count {
		data := make([]byte, size)
		fillText(data, n)
		fmt.Fprintf(&b, "%s: %s\n", prefix, text(data))
	}
	return b.String()
}

// finish waits for both ends of count pings and looks at what they wrote.
func finish(t *testing.T, server, client *toolstest.End, count, size int) {
	t.Helper()
	for _, c := range []struct {
		name, prefix string
		end          *toolstest.End
	}{{"client", "ping data", client}, {"server", "server ping data", server}} {
		if err := c.end.Wait(t); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		if diff := cmp.Diff(printed(c.prefix, count, size), c.end.Out.String()); diff != "" {
			t.Errorf("%s printed (-want +got):\n%s", c.name, diff)
		}
		if want := c.name + " DISCONNECT EVENT...\n"; !strings.HasSuffix(c.end.Log.String(), want) {
			t.Errorf("the log of the %s does not end with %q:\n%s", c.name, want, c.end.Log)
		}
	}
}

func TestPings(t *testing.T) {
	for _, size := range []int{1, 5, 14, 64, 1024, 1025, 65535, MaxSize} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			toolstest.Simulate(t, func(t *testing.T, open func(wrap.FaultConfig) roce.Device) {
				o := Defaults()
				o.Verbose, o.Validate = true, true
				server, co := startServer(t, open(wrap.FaultConfig{}), o)
				co.Count, co.Size = 20, size
				client := start(t, open(wrap.FaultConfig{}), co)
				finish(t, server, client, co.Count, size)
			})
		})
	}
}

// TestIPv6: an IPv6 address is an address like any.
func TestIPv6(t *testing.T) {
	toolstest.Simulate(t, func(t *testing.T, open func(wrap.FaultConfig) roce.Device) {
		o := Defaults()
		o.Verbose, o.Validate, o.Debug = true, true, true
		server, co := startServer(t, open(wrap.FaultConfig{}), o)
		co.Addr, co.Source = "2001:db8::1", netip.MustParseAddr("2001:db8::2")
		co.Count = 5
		client := start(t, open(wrap.FaultConfig{}), co)
		finish(t, server, client, 5, 64)
		for _, want := range []string{"connected: [2001:db8::2]:", "received go-ahead"} {
			if !strings.Contains(client.Log.String(), want) {
				t.Errorf("the client's log lacks %q:\n%s", want, client.Log)
			}
		}
	})
}

// TestPathMTU: a client that asks for a larger path MTU than the server takes connects with that of the server, which
// tells of it only where each step is logged.
func TestPathMTU(t *testing.T) {
	for _, persistent := range []bool{false, true} {
		for _, debug := range []bool{false, true} {
			toolstest.Simulate(t, func(t *testing.T, open func(wrap.FaultConfig) roce.Device) {
				o := Defaults()
				o.MTU, o.Persistent, o.Debug = 256, persistent, debug
				server, co := startServer(t, open(wrap.FaultConfig{}), o)
				co.MTU, co.Count = 0, 5
				if err := start(t, open(wrap.FaultConfig{}), co).Wait(t); err != nil {
					t.Errorf("the client ended with: %v", err)
				}
				server.Await(t, server.Log, "server DISCONNECT EVENT")
				if got := strings.Contains(server.Log.String(), "this end takes 256"); got != debug {
					t.Errorf("persistent %v, debug %v: the log has the refused path MTU: got %v, want %v:\n%s",
						persistent, debug, got, debug, server.Log)
				}
				server.Stop()
				_ = server.Wait(t)
			})
		}
	}
}

func TestLoss(t *testing.T) {
	toolstest.Simulate(t, func(t *testing.T, open func(wrap.FaultConfig) roce.Device) {
		o := Defaults()
		o.Verbose, o.Validate, o.AckTimeout = true, true, 16
		fault := wrap.FaultConfig{Drop: 0.05, Seed: 3}
		t.Logf("seeds %d, %d", fault.Seed, fault.Seed+1)
		server, co := startServer(t, open(fault), o)
		co.Count, co.Size = 50, 3000
		fault.Seed++
		client := start(t, open(fault), co)
		finish(t, server, client, co.Count, co.Size)
	})
}

// TestPersistent: one server, clients at once and after one another, one of which
// does not speak rping, and another that leaves in the middle.
func TestPersistent(t *testing.T) {
	toolstest.Simulate(t, func(t *testing.T, open func(wrap.FaultConfig) roce.Device) {
		o := Defaults()
		o.Persistent, o.Verbose, o.Validate = true, true, true
		server, co := startServer(t, open(wrap.FaultConfig{}), o)

		bad := connect(t, open(wrap.FaultConfig{}), co)
		if err := bad.send(place{length: MaxSize + 1}); err != nil {
			t.Fatal(err)
		}
		server.Await(t, server.Log, `client \S+: ping 0: .*has 65537 bytes, more than 65536`)
		if err := connect(t, open(wrap.FaultConfig{}), co).conn.Disconnect(t.Context()); err != nil {
			t.Error(err)
		}
		server.Await(t, server.Log, `server DISCONNECT EVENT`)

		const count = 30
		for round := range 2 {
			var clients []*toolstest.End
			for i := range 4 {
				co.Count, co.Size = count, 100*(i+1)
				clients = append(clients, start(t, open(wrap.FaultConfig{}), co))
			}
			for i, c := range clients {
				if err := c.Wait(t); err != nil {
					t.Errorf("round %d, client %d: %v", round, i, err)
				}
				if diff := cmp.Diff(printed("ping data", count, 100*(i+1)), c.Out.String()); diff != "" {
					t.Errorf("round %d, client %d printed (-want +got):\n%s", round, i, diff)
				}
			}
		}
		server.Stop()
		if err := server.Wait(t); !errors.Is(err, context.Canceled) {
			t.Errorf("the server ended with %v, want %v", err, context.Canceled)
		}
		if got := strings.Count(server.Out.String(), "server ping data: rdma-ping-"); got != 8*count {
			t.Errorf("the server printed %d pings, want %d", got, 8*count)
		}
	})
}

// TestValidate: the client notices one wrong byte, wherever it is, and that nothing
// came.
func TestValidate(t *testing.T) {
	toolstest.Simulate(t, func(t *testing.T, open func(wrap.FaultConfig) roce.Device) {
		for _, c := range []struct {
			corrupt func(buf []byte) (written int)
			want    string
		}{
			{func(b []byte) int { b[0] ^= 0x20; return 64 }, "byte 0 is 0x52, should be 0x72"},
			{func(b []byte) int { b[13] ^= 0x20; return 64 }, "byte 13 is 0x61, should be 0x41"},
			{func(b []byte) int { b[63] ^= 0x20; return 64 }, "byte 63 is 0x20, should be 0x00"},
			{func([]byte) int { return 63 }, "byte 63 is 0xe5 (nothing was written there), should be 0x00"},
			{func([]byte) int { return 0 }, "byte 0 is 0xe5 (nothing was written there), should be 0x72"},
		} {
			dev := open(wrap.FaultConfig{})
			cm, err := rdmacm.Open(dev, rdmacm.Options{})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { cm.Close() })
			l, err := cm.Listen(t.Context(), ":0", rdmacm.ListenConfig{})
			if err != nil {
				t.Fatal(err)
			}
			co := Defaults()
			co.Addr, co.Port, co.Count, co.Validate = toolstest.Addr(t, dev).String(), int(l.Addr().Port()), 2, true
			client := start(t, open(wrap.FaultConfig{}), co)
			serveCorrupt(t, cm, l, c.corrupt)
			if err := client.Wait(t); !errors.Is(err, ErrData) ||
				!strings.Contains(err.Error(), "ping 0: data mismatch: "+c.want) {
				t.Errorf("the client ended with %v, want: %s", err, c.want)
			}
		}
	})
}

// serveCorrupt serves a ping of which corrupt changes the text and says how much of
// it returns.
func serveCorrupt(t *testing.T, cm *rdmacm.CM, l *rdmacm.Listener, corrupt func([]byte) int) {
	t.Helper()
	o := Defaults()
	r, err := l.Request(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	s, err := newServer(cm.Device(), &o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	if err := s.accept(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	from, err := s.receive(t.Context())
	if err == nil {
		err = s.rdma(t.Context(), ib.WRRead, s.mr, int(from.length), from)
	}
	if err == nil {
		err = s.send(place{})
	}
	if err != nil {
		t.Fatal(err)
	}
	length := corrupt(s.buf)
	to, err := s.receive(t.Context())
	if err == nil {
		err = s.rdma(t.Context(), ib.WRWrite, s.mr, length, to)
	}
	if err == nil {
		err = s.send(place{})
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestHostileClient: what a client may say and do wrong ends its server with an
// error that says so.
func TestHostileClient(t *testing.T) {
	for _, c := range []struct {
		name  string
		play  func(ctx context.Context, c *client) error
		match error
		text  string
	}{
		{"huge text", func(_ context.Context, c *client) error { return c.send(place{length: 1<<32 - 1}) },
			ErrProtocol, "has 4294967295 bytes, more than 65536"},
		{"nobody's memory", func(_ context.Context, c *client) error { return c.send(place{1, 2, 3}) },
			&ib.WCError{Status: ib.WCRemAccessErr}, "refuses access to the memory"},
		{"short message", func(_ context.Context, c *client) error {
			_, err := c.conn.QP().PostSend([]ib.SendWR{{ID: idSend, Opcode: ib.WRSend,
				Flags: ib.SendSignaled | ib.SendInline, Inline: []byte{1}}})
			return err
		}, ErrProtocol, "has 1 bytes, not 16"},
		{"long message", func(_ context.Context, c *client) error {
			_, err := c.conn.QP().PostSend([]ib.SendWR{{ID: idSend, Opcode: ib.WRSend, Flags: ib.SendSignaled,
				SGL: sgl(c.startMR, 17)}})
			return err
		}, ErrProtocol, "not of 16 bytes"},
		{"no room", func(ctx context.Context, c *client) error {
			fillText(c.start, 0)
			if err := c.send(place{c.startMR.Addr(), c.startMR.RKey(), 64}); err != nil {
				return err
			}
			if _, err := c.receive(ctx); err != nil {
				return err
			}
			return c.send(place{c.sinkMR.Addr(), c.sinkMR.RKey(), 63})
		}, ErrProtocol, "room for 63 bytes of a text of 64"},
		{"leaves in the middle", func(ctx context.Context, c *client) error {
			if err := c.send(place{c.startMR.Addr(), c.startMR.RKey(), 64}); err != nil {
				return err
			}
			if _, err := c.receive(ctx); err != nil {
				return err
			}
			return c.conn.Disconnect(ctx)
		}, rdmacm.ErrDisconnected, "ping 0: the connection to"},
	} {
		t.Run(c.name, func(t *testing.T) {
			toolstest.Simulate(t, func(t *testing.T, open func(wrap.FaultConfig) roce.Device) {
				server, co := startServer(t, open(wrap.FaultConfig{}), Defaults())
				client := connect(t, open(wrap.FaultConfig{}), co)
				if err := c.play(t.Context(), client); err != nil {
					t.Fatal(err)
				}
				if err := server.Wait(t); !errors.Is(err, c.match) || !strings.Contains(err.Error(), c.text) {
					t.Errorf("the server ended with: %v, want %v and %q", err, c.match, c.text)
				}
			})
		})
	}
}

// TestWritesText: the server writes a text with its NUL and no more of what it has
// READ; all of it if there is no NUL.
func TestWritesText(t *testing.T) {
	toolstest.Simulate(t, func(t *testing.T, open func(wrap.FaultConfig) roce.Device) {
		server, co := startServer(t, open(wrap.FaultConfig{}), Defaults())
		co.Size = 5
		c := connect(t, open(wrap.FaultConfig{}), co)
		for _, pair := range [][2]string{{"ab\x00cd", "ab\x00\xe5\xe5"}, {"abcde", "abcde"},
			{"\x00bcde", "\x00\xe5\xe5\xe5\xe5"}} {
			copy(c.start, pair[0])
			wipe(c.sink)
			for _, mr := range []ib.MR{c.startMR, c.sinkMR} {
				if err := c.send(place{mr.Addr(), mr.RKey(), 5}); err != nil {
					t.Fatal(err)
				}
				if _, err := c.receive(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			if string(c.sink) != pair[1] {
				t.Errorf("%q returned as %q, want %q", pair[0], c.sink, pair[1])
			}
		}
		if err := c.conn.Disconnect(t.Context()); err != nil {
			t.Error(err)
		}
		if err := server.Wait(t); err != nil {
			t.Errorf("the server ended with: %v", err)
		}
	})
}

// TestOutOfTurn: a message that nobody waits for is none of rping.
func TestOutOfTurn(t *testing.T) {
	toolstest.Simulate(t, func(t *testing.T, open func(wrap.FaultConfig) roce.Device) {
		_, co := startServer(t, open(wrap.FaultConfig{}), Defaults())
		c := connect(t, open(wrap.FaultConfig{}), co)
		if err := c.send(place{c.startMR.Addr(), c.startMR.RKey(), 64}); err != nil {
			t.Fatal(err)
		}
		if _, err := c.await(t.Context(), idRDMA); !errors.Is(err, ErrProtocol) ||
			!strings.Contains(err.Error(), "out of turn") {
			t.Errorf("a go-ahead while an RDMA is waited for: %v, want %v and %q", err, ErrProtocol, "out of turn")
		}
	})
}

// TestSilence: an end does not wait for ever.
func TestSilence(t *testing.T) {
	toolstest.Simulate(t, func(t *testing.T, open func(wrap.FaultConfig) roce.Device) {
		o := Defaults()
		o.Timeout = time.Second
		server, co := startServer(t, open(wrap.FaultConfig{}), o)
		co.Timeout = toolstest.Patience
		connect(t, open(wrap.FaultConfig{}), co)
		if err := server.Wait(t); !errors.Is(err, ErrSilent) {
			t.Errorf("the server ended with: %v, want %v", err, ErrSilent)
		}
	})
}

// TestServerEnds: a client whose server is stopped has failed, and says how far it
// got.
func TestServerEnds(t *testing.T) {
	toolstest.Simulate(t, func(t *testing.T, open func(wrap.FaultConfig) roce.Device) {
		server, co := startServer(t, open(wrap.FaultConfig{}), Defaults())
		co.Verbose = true
		client := start(t, open(wrap.FaultConfig{}), co)
		client.Await(t, client.Out, `rdma-ping-9: `)
		server.Stop()
		if err := server.Wait(t); !errors.Is(err, context.Canceled) {
			t.Errorf("the server ended with %v, want %v", err, context.Canceled)
		}
		if err := client.Wait(t); !errors.Is(err, rdmacm.ErrDisconnected) || !strings.HasPrefix(err.Error(), "ping ") {
			t.Errorf("the client ended with %v, want %v of a ping", err, rdmacm.ErrDisconnected)
		}
	})
}

// TestClientStopped: without a count the client goes on until it is stopped; the
// server sees that as any other end, between two pings or in the middle of one.
func TestClientStopped(t *testing.T) {
	toolstest.Simulate(t, func(t *testing.T, open func(wrap.FaultConfig) roce.Device) {
		server, co := startServer(t, open(wrap.FaultConfig{}), Defaults())
		co.Verbose = true
		client := start(t, open(wrap.FaultConfig{}), co)
		client.Await(t, client.Out, `rdma-ping-9: `)
		client.Stop()
		if err := client.Wait(t); !errors.Is(err, context.Canceled) {
			t.Errorf("the client ended with %v, want %v", err, context.Canceled)
		}
		if log := client.Log.String(); !regexp.MustCompile(`(?m)^\d+ pings in \S+, \S+ each$`).MatchString(log) {
			t.Errorf("got %q, want how many pings there were", log)
		}
		if err := server.Wait(t); err != nil && !errors.Is(err, rdmacm.ErrDisconnected) {
			t.Errorf("the server ended with %v, want none or %v", err, rdmacm.ErrDisconnected)
		}
	})
}

func TestNobodyListens(t *testing.T) {
	toolstest.Simulate(t, func(t *testing.T, open func(wrap.FaultConfig) roce.Device) {
		o := Defaults()
		o.Addr, o.Timeout = toolstest.Addr(t, open(wrap.FaultConfig{Drop: 1})).String(), 300*time.Millisecond
		client := start(t, open(wrap.FaultConfig{}), o)
		var silence *rdmacm.TimeoutError
		if err := client.Wait(t); !errors.As(err, &silence) {
			t.Errorf("a host of which nothing comes back: %v, want a silence", err)
		}

		server, co := startServer(t, open(wrap.FaultConfig{}), Defaults())
		co.Port++
		client = start(t, open(wrap.FaultConfig{}), co)
		var reject *rdmacm.RejectError
		if err := client.Wait(t); !errors.As(err, &reject) ||
			!strings.Contains(err.Error(), "start it there first: `goroced rping -s -p ") {
			t.Errorf("a port where nobody listens: %v, want %q", err, "start it there first: `goroced rping -s -p ")
		}
		server.Stop()
	})
}

// TestForeignSource: the address to connect from is one of the device.
func TestForeignSource(t *testing.T) {
	toolstest.Simulate(t, func(t *testing.T, open func(wrap.FaultConfig) roce.Device) {
		server, co := startServer(t, open(wrap.FaultConfig{}), Defaults())
		co.Source = netip.MustParseAddr(co.Addr)
		if err := start(t, open(wrap.FaultConfig{}), co).Wait(t); !errors.Is(err, ib.ErrInvalid) ||
			!strings.Contains(err.Error(), co.Addr) {
			t.Errorf("a client with the server's address: %v, want %v and %q", err, ib.ErrInvalid, co.Addr)
		}
		server.Stop()
	})
}

func TestOptions(t *testing.T) {
	toolstest.Simulate(t, func(t *testing.T, open func(wrap.FaultConfig) roce.Device) {
		dev := open(wrap.FaultConfig{})
		for _, c := range []struct {
			attr   string
			change func(*Options)
		}{
			{"Port", func(o *Options) { o.Port = 65536 }},
			{"Port", func(o *Options) { o.Port = 0 }},
			{"Port", func(o *Options) { o.Server, o.Port = true, -1 }},
			{"Count", func(o *Options) { o.Count = -1 }},
			{"Size", func(o *Options) { o.Size = 0 }},
			{"Size", func(o *Options) { o.Size = MaxSize + 1 }},
			{"AckTimeout", func(o *Options) { o.AckTimeout = 32 }},
			{"MTU", func(o *Options) { o.MTU = 1500 }},
			{"Addr", func(o *Options) { o.Addr = "" }},
			{"Persistent", func(o *Options) { o.Persistent = true }},
			{"Source", func(o *Options) { o.Server, o.Source = true, linktest.Loopback() }},
			{"Timeout", func(o *Options) { o.Timeout = 0 }},
		} {
			o := Defaults()
			o.Addr = "192.0.2.1"
			c.change(&o)
			var refused *ib.AttrError
			if err := Run(t.Context(), dev, o); !errors.As(err, &refused) || refused.Attr != c.attr {
				t.Errorf("%+v: %v, want a word on %s", o, err, c.attr)
			}
		}
	})
}

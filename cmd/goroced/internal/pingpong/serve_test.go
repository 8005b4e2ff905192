package pingpong

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/goroce/goroce/cmd/goroced/internal/meet"
	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/link/wrap"
	"github.com/goroce/goroce/tests/toolstest"
)

// host is a server that takes clients in turn.
type host struct {
	*toolstest.End
	dev, clients ib.Device
	o            Options
}

// serve begins a server of clients in turn.
func (p *place) serve(t *testing.T) *host {
	t.Helper()
	h := &host{dev: p.open(wrap.FaultConfig{}), clients: p.open(wrap.FaultConfig{}), o: Defaults(RC)}
	p.setUp(&h.o)
	h.End = toolstest.Start(t, func(ctx context.Context, out, log io.Writer) error {
		o := h.o
		o.Out, o.Log = out, log
		return Serve(ctx, h.dev, o, meet.Limits{Size: 1 << 20, NumQP: 32, Memory: 3 << 19, Time: time.Minute})
	})
	h.Await(t, h.Log, "waiting for clients")
	return h
}

// client runs a client of the server.
func (h *host) client(t *testing.T, p *place, o Options) *end {
	t.Helper()
	p.setUp(&o)
	o.Host = toolstest.Addr(t, h.dev).String()
	return start(t, h.clients, o)
}

// works runs a client that must be served.
func (h *host) works(t *testing.T, p *place) {
	t.Helper()
	o := Defaults(RC)
	o.Iters = 10
	if err := h.client(t, p, o).Wait(t); err != nil {
		t.Errorf("the next client got %v\nand the server said\n%s", err, h.Log)
	}
}

// TestServe: one server serves clients with all kinds of options, one after the other.
func TestServe(t *testing.T) {
	simulated(t, func(t *testing.T, p *place) {
		h := p.serve(t)
		n := 0
		for _, service := range allServices {
			for _, check := range []bool{false, true} {
				o := Defaults(service)
				o.Iters, o.Check, o.Size = 40, check, 700
				if service == SRQ {
					o.NumQP = 7
				}
				client := h.client(t, p, o)
				if err := client.Wait(t); err != nil {
					t.Fatalf("%v, check %v: %v\nthe server said\n%s", service, check, err, h.Log)
				}
				n++
			}
		}
		h.Await(t, h.Out, "goroced pingpong --service srq -s 700 -q 7 -n 40 -c HOST")
		h.works(t, p)
		h.Stop()
		if err := h.Wait(t); err != nil || strings.Count(h.Out.String(), "Mbit/sec") != n+1 {
			t.Errorf("the server ends with %v, want %d results; it printed\n%s", err, n+1, h.Out)
		}
	})
}

// TestServeBadClients: what a client may not ask is refused with the limit, what it says or does not say holds the
// server up for a limited time, and the next is served.
func TestServeBadClients(t *testing.T) {
	asks := func(change func(*Options)) func(*testing.T, *place, *host) error {
		return func(t *testing.T, p *place, h *host) error {
			o := Defaults(RC)
			change(&o)
			return h.client(t, p, o).Wait(t)
		}
	}
	writes := func(text string) func(*testing.T, *place, *host) error {
		return func(t *testing.T, p *place, h *host) error {
			conn, err := h.o.network.DialContext(t.Context(), "tcp", toolAddr)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { conn.Close() })
			if _, err := conn.Write([]byte(text)); err != nil {
				t.Fatal(err)
			}
			return nil
		}
	}
	a := address{qpn: 1, psn: markPSN, gid: ib.GID{15: 1}}
	line := a.encode()
	mark(line)
	for _, c := range []struct {
		name string
		bad  func(*testing.T, *place, *host) error
		err  error
		said string
	}{
		{"too long", asks(func(o *Options) { o.Size = 1<<20 + 1 }), meet.ErrRefused,
			"-s asks for 1048577 bytes of a message, at most 1048576 are allowed"},
		{"too many", asks(func(o *Options) { *o = Defaults(SRQ); o.NumQP = 33 }), meet.ErrRefused,
			"-q asks for 33 queue pairs, at most 32 are allowed"},
		{"too much", asks(func(o *Options) { *o = Defaults(SRQ); o.Size, o.Check = 4096, true }), meet.ErrRefused,
			"bytes of memory for all messages, at most 1572864 are allowed"},
		{"a C tool", asks(func(o *Options) { o.mute = true }), ErrExchange, "does not tell its options"},
		{"silence", writes(""), nil, "it did not say in time what it wants"},
		{"noise", writes("GET / HTTP/1.1\r\n\r\n" + strings.Repeat("x", 60)), nil, "does not tell its options"},
		{"addresses without end", writes(strings.Repeat(string(line), 400)), nil, "does not answer the greeting"},
		{"nothing behind the mark", writes(string(line)), nil, "it did not say in time what it wants"},
	} {
		t.Run(c.name, func(t *testing.T) {
			simulated(t, func(t *testing.T, p *place) {
				h := p.serve(t)
				if err := c.bad(t, p, h); !errors.Is(err, c.err) {
					t.Errorf("got error %v, want %v", err, c.err)
				} else if errors.Is(err, meet.ErrRefused) && !strings.Contains(err.Error(), c.said) {
					t.Errorf("got error %v, want one that says %q", err, c.said)
				}
				h.Await(t, h.Log, c.said)
				h.works(t, p)
			})
		})
	}
}

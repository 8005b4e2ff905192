package perf

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"regexp"
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
	dev     ib.Device
	clients ib.Device // of all clients
	o       Options
	reports []*Report
}

var testLimits = meet.Limits{Size: 1 << 20, NumQP: 8, Memory: 4 << 20, Time: time.Minute}

// serve begins a server of clients in turn.
func (p *place) serve(t *testing.T) *host {
	t.Helper()
	h := &host{dev: p.open(wrap.FaultConfig{}), clients: p.open(wrap.FaultConfig{}), o: Defaults(Send, BW)}
	p.setUp(&h.o)
	h.End = toolstest.Start(t, func(ctx context.Context, out, log io.Writer) error {
		o := h.o
		o.Out, o.Log = out, log
		return Serve(ctx, h.dev, o, testLimits, func(r *Report) error {
			h.reports = append(h.reports, r)
			return nil
		})
	})
	h.Await(t, h.Log, "waiting for clients")
	return h
}

// client runs a client of the server.
func (h *host) client(t *testing.T, p *place, o Options) *end {
	t.Helper()
	o.Host = toolstest.Addr(t, h.dev).String()
	return p.start(t, h.clients, o)
}

// works runs a client that must be served.
func (h *host) works(t *testing.T, p *place) {
	t.Helper()
	o := Defaults(Write, BW)
	o.Iters = 10
	if err := h.client(t, p, o).Wait(t); err != nil {
		t.Errorf("the next client got %v\nand the server said\n%s", err, h.Log)
	}
}

// TestServe: one server serves clients with all kinds of options, one after the other.
func TestServe(t *testing.T) {
	simulated(t, func(t *testing.T, p *place) {
		h := p.serve(t)
		list := pairs()
		for _, change := range []func(*Options){
			func(o *Options) { o.Bidirectional, o.NumQP, o.Gbits = true, 3, true },
			func(o *Options) { o.All, o.Size, o.Iters = true, 256, 20 },
			func(o *Options) { o.Duration, o.TxDepth = 500*time.Microsecond, 8 },
			func(o *Options) { o.Size, o.Inline, o.PostList, o.RxDepth = 64, 64, 4, 16 },
		} {
			list = append(list, with(Defaults(Send, BW), change), with(Defaults(Write, BW), change))
		}
		for _, o := range list {
			o.Iters = min(o.Iters, 20)
			client := h.client(t, p, o)
			if err := client.Wait(t); err != nil {
				t.Fatalf("%s: %v\nthe server said\n%s", o.label(), err, h.Log)
			}
			o.Host = "server"
			checkEnd(t, "client of "+o.label(), o, client)
		}
		h.Await(t, h.Out, regexp.QuoteMeta("goroced perf write bw -s 64 -n 20 HOST"))
		h.Stop()
		if err := h.Wait(t); err != nil {
			t.Errorf("the server ends with %v", err)
		}
		if strings.Count(h.Out.String(), "client ") != len(list) || len(h.reports) == 0 {
			t.Errorf("%d reports, want some of %d clients; it printed\n%s", len(h.reports), len(list), h.Out)
		}
	})
}

// TestServeLimits: what a client may not ask is refused at once, with the limit, and the next client is served.
func TestServeLimits(t *testing.T) {
	for _, c := range []struct {
		want   string
		change func(*Options)
	}{
		{"-s asks for 1048577 bytes of a message, at most 1048576 are allowed (--max-size there)",
			func(o *Options) { o.Size = 1<<20 + 1 }},
		{"-q asks for 9 queue pairs, at most 8 are allowed (--max-qp there)", func(o *Options) { o.NumQP = 9 }},
		{"-D asks for 61 seconds, at most 60 are allowed (--max-time there)",
			func(o *Options) { o.Duration = 61 * time.Second }},
		{"-s times -q asks for 8388608 bytes of memory for all messages, at most 4194304 are allowed",
			func(o *Options) { o.NumQP, o.Size = 4, 1<<20 }},
	} {
		simulated(t, func(t *testing.T, p *place) {
			h := p.serve(t)
			client := h.client(t, p, with(Defaults(Write, BW), c.change))
			if err := client.Wait(t); !errors.Is(err, meet.ErrRefused) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got error %v, want %v that says %q", err, meet.ErrRefused, c.want)
			}
			h.Await(t, h.Log, "client .*"+regexp.QuoteMeta(c.want))
			h.works(t, p)
		})
	}
}

// TestServeBadClients: clients that say nothing, say something else, leave, die or do not tell their options hold the
// server up for a limited time, and it says what was wrong.
func TestServeBadClients(t *testing.T) {
	for _, c := range []struct {
		name string
		bad  func(t *testing.T, p *place, h *host)
		said string
	}{
		{"silence", func(t *testing.T, p *place, h *host) {
			for range 20 { // more than have room
				dial(t, h)
			}
		}, "it did not say in time what it wants"},
		{"noise", func(t *testing.T, p *place, h *host) {
			_, _ = dial(t, h).Write([]byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n"))
		}, "no version of perftest"},
		{"a long text", func(t *testing.T, p *place, h *host) {
			_, _ = dial(t, h).Write(append(encodeVersion(true), 0xff, 0xff, 0xff, 0xff))
		}, "a text of 4294967295 bytes"},
		{"leaves", func(t *testing.T, p *place, h *host) { dial(t, h).Close() }, "EOF"},
		{"a C tool", func(t *testing.T, p *place, h *host) {
			client := h.client(t, p, with(Defaults(Write, BW), func(o *Options) { o.mute = true }))
			if err := client.Wait(t); err == nil {
				t.Error("the C tool was served")
			}
		}, "does not tell its options"},
		{"stopped", func(t *testing.T, p *place, h *host) {
			client := h.client(t, p, with(Defaults(Write, BW), func(o *Options) { o.Duration = 30 * time.Second }))
			client.Await(t, client.Out, " remote address:")
			client.Stop()
			_ = client.Wait(t)
		}, "client "},
		{"falls silent in its turn", func(t *testing.T, p *place, h *host) {
			o := Defaults(Read, BW)
			o.Duration = 5 * time.Second
			conn := dial(t, h)
			_, _ = conn.Write(encodeVersion(true))
			_, _ = conn.Read(make([]byte, versionLen))
			err := meet.Agree(func(mine, theirs []byte) error {
				_, err := conn.Write(mine)
				if err == nil {
					_, err = io.ReadFull(conn, theirs)
				}
				return err
			}, terms.Terms(&o), func(*meet.Terms) error { return nil })
			if err != nil {
				t.Error(err)
			}
			time.Sleep(o.Duration + 3*o.Timeout)
		}, "client .*0 of 4 bytes"},
	} {
		t.Run(c.name, func(t *testing.T) {
			simulated(t, func(t *testing.T, p *place) {
				h := p.serve(t)
				c.bad(t, p, h)
				h.Await(t, h.Log, c.said)
				h.works(t, p)
			})
		})
	}
}

func dial(t *testing.T, h *host) net.Conn {
	t.Helper()
	conn, err := h.o.network.DialContext(t.Context(), "tcp", fmt.Sprintf("127.0.0.1:%d", h.o.Port))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// TestServeBusy: a client that comes while another is served waits a moment, and is told then how long that may take.
func TestServeBusy(t *testing.T) {
	simulated(t, func(t *testing.T, p *place) {
		h := p.serve(t)
		all := h.clients
		h.clients = p.open(wrap.FaultConfig{Latency: 10 * time.Millisecond})
		first := h.client(t, p, with(Defaults(Read, Lat), func(o *Options) { o.Iters, o.Events = 200, true })) // 4 s
		h.clients = all
		first.Await(t, first.Out, " remote address:")
		second := h.client(t, p, Defaults(Write, BW))
		if err := second.Wait(t); !errors.Is(err, meet.ErrRefused) ||
			!strings.Contains(err.Error(), "busy with client") {
			t.Errorf("got error %v, want %v, busy", err, meet.ErrRefused)
		}
		third := h.client(t, p, with(Defaults(Write, BW), func(o *Options) { o.Iters = 10 })) // waits for the first
		if err := errors.Join(first.Wait(t), third.Wait(t)); err != nil {
			t.Error(err)
		}
	})
}

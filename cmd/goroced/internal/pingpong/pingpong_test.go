package pingpong

import (
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"testing"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce"
	"github.com/goroce/goroce/roce/link/wrap"
	"github.com/goroce/goroce/tests/toolstest"
)

// end is an end under way.
type end struct {
	*toolstest.End
	res Result
}

// start begins an end.
func start(t *testing.T, dev ib.Device, o Options) *end {
	t.Helper()
	e := &end{}
	e.End = toolstest.Start(t, func(ctx context.Context, out, log io.Writer) (err error) {
		o.Out, o.Log = out, log
		e.res, err = Run(ctx, dev, o)
		return err
	})
	return e
}

// place is where the ends of a test run.
type place struct {
	open  func(wrap.FaultConfig) roce.Device
	setUp func(*Options) // for both ends
}

// simulated runs a test in virtual time.
func simulated(t *testing.T, test func(t *testing.T, p *place)) {
	t.Helper()
	toolstest.Simulate(t, func(t *testing.T, open func(wrap.FaultConfig) roce.Device) {
		var streams toolstest.Streams
		test(t, &place{open, func(o *Options) { o.network, o.yield = &streams, toolstest.Yield }})
	})
}

// match runs a server and a client with the same options and returns both.
func (p *place) match(t *testing.T, o Options, fault wrap.FaultConfig) (server, client *end) {
	t.Helper()
	return p.meet(t, o, o, fault)
}

// meet runs a server and a client.
func (p *place) meet(t *testing.T, so, co Options, fault wrap.FaultConfig) (server, client *end) {
	t.Helper()
	serverDev := p.open(fault)
	fault.Seed++
	return p.meetOn(t, serverDev, p.open(fault), so, co)
}

func (p *place) meetOn(t *testing.T, serverDev, clientDev ib.Device, so, co Options) (server, client *end) {
	t.Helper()
	p.setUp(&so)
	p.setUp(&co)
	server = start(t, serverDev, so)
	server.Await(t, server.Log, "waiting for a client")
	co.Host = toolstest.Addr(t, serverDev).String()
	return server, start(t, clientDev, co)
}

var lines = regexp.MustCompile(`^  local address:  LID 0x0000, QPN 0x[0-9a-f]{6}, PSN 0x[0-9a-f]{6}, GID ::ffff:\d+\.\d+\.\d+\.\d+
  remote address: LID 0x0000, QPN 0x[0-9a-f]{6}, PSN 0x[0-9a-f]{6}, GID ::ffff:\d+\.\d+\.\d+\.\d+
(\d+) bytes in \d+\.\d\d seconds = \d+\.\d\d Mbit/sec
(\d+) iters in \d+\.\d\d seconds = \d+\.\d\d usec/iter
$`)

func TestMatch(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*Options)
		fault  wrap.FaultConfig
	}{
		{"defaults", func(*Options) {}, wrap.FaultConfig{}},
		{"1 byte", func(o *Options) { o.Size = 1 }, wrap.FaultConfig{}},
		{"5001 bytes", func(o *Options) { o.Size = 5001 }, wrap.FaultConfig{}},
		{"1 MiB", func(o *Options) { o.Size, o.Iters = 1<<20, 2 }, wrap.FaultConfig{}},
		{"MTU 256", func(o *Options) { o.MTU = ib.MTU256 }, wrap.FaultConfig{}},
		{"MTU 4096", func(o *Options) { o.MTU, o.Size = ib.MTU4096, 9000 }, wrap.FaultConfig{}},
		{"events", func(o *Options) { o.Events = true }, wrap.FaultConfig{}},
		{"one receive", func(o *Options) { o.RxDepth = 1 }, wrap.FaultConfig{}},
		{"losses", func(*Options) {}, wrap.FaultConfig{Drop: 0.05}},
		{"losses, events, long", func(o *Options) { o.Size, o.Iters, o.Events = 20_000, 20, true },
			wrap.FaultConfig{Drop: 0.05}},
	} {
		for _, check := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, check %v", c.name, check), func(t *testing.T) {
				simulated(t, func(t *testing.T, p *place) {
					o := Defaults(RC)
					o.Iters, o.Check = 100, check
					c.change(&o)
					server, client := p.match(t, o, c.fault)
					finish(t, &o, server, client)
				})
			})
		}
	}
}

// finish waits for both ends and looks at what they wrote.
func finish(t *testing.T, o *Options, server, client *end) {
	t.Helper()
	for name, e := range map[string]*end{"server": server, "client": client} {
		if err := e.Wait(t); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		m := lines.FindStringSubmatch(e.Out.String())
		if m == nil || m[1] != fmt.Sprint(2*o.Size*o.Iters) || m[2] != fmt.Sprint(o.Iters) {
			t.Errorf("%s printed, want %d bytes in %d iters:\n%s", name, 2*o.Size*o.Iters, o.Iters, e.Out.String())
		}
	}
}

// TestToolMismatch: ends that do not agree, and cannot tell each other their options, fail, both, and say what to look
// at.
func TestToolMismatch(t *testing.T) {
	for _, c := range []struct {
		name   string
		server func(*Options)
		client func(*Options)
		want   string // said by either
	}{
		{"client's messages are longer", func(o *Options) { o.Size = 1000 }, func(o *Options) { o.Size = 2000 },
			"both ends need the same size (-s)"},
		{"client's messages are shorter", func(o *Options) { o.Size = 2000 }, func(o *Options) { o.Size = 1000 },
			"both ends need the same -s"},
		{"only the server checks", func(o *Options) { o.Check = true }, func(*Options) {},
			"the client must run with -c too"},
	} {
		t.Run(c.name, func(t *testing.T) {
			simulated(t, func(t *testing.T, p *place) {
				so, co := Defaults(RC), Defaults(RC)
				so.mute, co.mute = true, true
				c.server(&so)
				c.client(&co)
				server, client := p.meet(t, so, co, wrap.FaultConfig{})
				said := ""
				for name, e := range map[string]*end{"server": server, "client": client} {
					if err := e.Wait(t); err == nil {
						t.Errorf("%s: no error, want one", name)
					} else {
						said += err.Error() + "\n"
					}
				}
				if !strings.Contains(said, c.want) {
					t.Errorf("nobody said %q:\n%s", c.want, said)
				}
			})
		})
	}
}

// TestOnlyTheClientChecks: the server returns what it got, as the C tool's does.
func TestOnlyTheClientChecks(t *testing.T) {
	simulated(t, func(t *testing.T, p *place) {
		so := Defaults(RC)
		so.Size, so.Iters = 9000, 50
		co := so
		co.Check = true
		server, client := p.meet(t, so, co, wrap.FaultConfig{})
		if err := errors.Join(server.Wait(t), client.Wait(t)); err != nil {
			t.Error(err)
		}
	})
}

// TestDeviceIsLeftClean: a run frees all that it made, so that another may follow.
func TestDeviceIsLeftClean(t *testing.T) {
	simulated(t, func(t *testing.T, p *place) {
		dev, other := p.open(wrap.FaultConfig{}), p.open(wrap.FaultConfig{})
		for range 3 {
			o := Defaults(RC)
			o.Iters = 10
			server, client := p.meetOn(t, dev, other, o, o)
			if err := errors.Join(server.Wait(t), client.Wait(t)); err != nil {
				t.Fatal(err)
			}
		}
		if st := dev.Stats(); st.RetryExceeded != 0 {
			t.Errorf("%d retries exceeded, want none", st.RetryExceeded)
		}
	})
}

// TestPeerHasLeft: a C tool may end before the ACK of a queue pair's very last SEND
// is repeated, at either end, and only of that one.
func TestPeerHasLeft(t *testing.T) {
	for _, c := range []struct {
		host                  string
		numQP, sent, received int
		status                ib.WCStatus
		want                  bool
	}{
		{"", 1, 9, 10, ib.WCRetryExcErr, true},
		{"server", 1, 9, 10, ib.WCRetryExcErr, true},
		{"server", 1, 9, 9, ib.WCRetryExcErr, false},
		{"server", 1, 8, 10, ib.WCRetryExcErr, false},
		{"", 1, 9, 10, ib.WCRemOpErr, false},
		{"", 4, 6, 12, ib.WCRetryExcErr, true},
		{"", 4, 5, 12, ib.WCRetryExcErr, false},
	} {
		g := &game{endpoint: &endpoint{o: &Options{Iters: 10, Host: c.host, NumQP: c.numQP}}, sent: c.sent,
			received: c.received}
		if got := g.peerHasLeft(&ib.WC{Status: c.status}); got != c.want {
			t.Errorf("%+v: %v, want %v", c, got, c.want)
		}
	}
}

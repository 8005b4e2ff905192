package perf

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce"
	"github.com/goroce/goroce/roce/link/wrap"
	"github.com/goroce/goroce/roce/rdmacm"
	"github.com/goroce/goroce/tests/toolstest"
)

// end is an end under way, and what became of it.
type end struct {
	*toolstest.End
	rep *Report
	mem *memory // after a run that went well
}

// start begins an end.
func start(t *testing.T, dev ib.Device, o Options) *end {
	t.Helper()
	e := &end{}
	e.End = toolstest.Start(t, func(ctx context.Context, out, log io.Writer) (err error) {
		o.Out, o.Log = out, log
		o.inspect = func(p *endpoint) { e.mem = p.mem }
		e.rep, err = Run(ctx, dev, o)
		return err
	})
	return e
}

// place is where the ends of a test run.
type place struct {
	open  func(wrap.FaultConfig) roce.Device
	setUp func(*Options) // for both ends
}

// simulated runs a test in virtual time. Packets take their time, as those of 100 Gb/s Ethernet.
func simulated(t *testing.T, test func(t *testing.T, p *place)) {
	t.Helper()
	toolstest.Simulate(t, func(t *testing.T, open func(wrap.FaultConfig) roce.Device) {
		var streams toolstest.Streams
		test(t, &place{
			open: func(f wrap.FaultConfig) roce.Device {
				f.Rate = 100e9
				return open(f)
			},
			setUp: func(o *Options) { o.network, o.yield = &streams, toolstest.Yield },
		})
	})
}

// start begins an end on dev.
func (p *place) start(t *testing.T, dev ib.Device, o Options) *end {
	t.Helper()
	p.setUp(&o)
	return start(t, dev, o)
}

// startClient starts a client when the server listens.
func (p *place) startClient(t *testing.T, server *end, serverDev, dev ib.Device, o Options) *end {
	t.Helper()
	server.Await(t, server.Out, regexp.QuoteMeta(waitingLine))
	o.Host = toolstest.Addr(t, serverDev).String()
	return p.start(t, dev, o)
}

// match runs a server and a client with the same options and returns both.
func (p *place) match(t *testing.T, o Options, fault wrap.FaultConfig) (server, client *end) {
	t.Helper()
	serverDev := p.open(fault)
	fault.Seed++
	clientDev := p.open(fault)
	server = p.start(t, serverDev, o)
	client = p.startClient(t, server, serverDev, clientDev, o)
	_, _ = server.Wait(t), client.Wait(t)
	return server, client
}

// pairs are what can be tested.
func pairs() (list []Options) {
	for op := range Op(numOps) {
		for test := range numTests {
			for _, service := range tests[op][test].services {
				o := Defaults(op, test)
				o.Service, o.Iters = service, 200
				o.Size = min(o.Size, 4096)
				list = append(list, o)
			}
		}
	}
	return list
}

func (o *Options) label() string {
	label := fmt.Sprintf("%v %v %v", o.Op, o.Test, o.Service)
	if o.CM {
		label += " rdma_cm"
	}
	return label
}

// TestPairs runs every test with goroce at both ends.
func TestPairs(t *testing.T) {
	always := func(*Options) bool { return true }
	bw := func(o *Options) bool { return o.Test == BW }
	rc := func(o *Options) bool { return o.Service == RC }
	for _, c := range []struct {
		name   string
		where  func(*Options) bool
		change func(*Options)
		fault  wrap.FaultConfig
	}{
		{"plain", always, func(*Options) {}, wrap.FaultConfig{}},
		{"four queue pairs", bw, func(o *Options) { o.NumQP = 4 }, wrap.FaultConfig{}},
		{"events", func(o *Options) bool { return !o.traits().memory }, func(o *Options) { o.Events = true },
			wrap.FaultConfig{}},
		{"duration", always, func(o *Options) { o.Duration = 500 * time.Microsecond }, wrap.FaultConfig{}},
		{"all sizes", func(o *Options) bool { return o.Op != Atomic },
			func(o *Options) { o.All, o.Size, o.Iters = true, 1024, 30 }, wrap.FaultConfig{}},
		{"both directions", bw, func(o *Options) { o.Bidirectional = true }, wrap.FaultConfig{}},
		{"both directions for a while", bw, func(o *Options) {
			o.Bidirectional, o.Duration = true, 500*time.Microsecond
		}, wrap.FaultConfig{}},
		{"both directions, all sizes", func(o *Options) bool { return o.Test == BW && o.Op != Atomic },
			func(o *Options) { o.Bidirectional, o.All, o.Size, o.Iters = true, true, 256, 30 }, wrap.FaultConfig{}},
		{"inline", func(o *Options) bool { return !o.fetches() }, func(o *Options) { o.Size, o.Inline = 64, 64 },
			wrap.FaultConfig{}},
		{"lists of 8", bw, func(o *Options) { o.PostList, o.CQMod = 8, 100 }, wrap.FaultConfig{}},
		{"one at a time", func(o *Options) bool { return bw(o) && rc(o) },
			func(o *Options) { o.TxDepth, o.RxDepth = 1, 1 }, wrap.FaultConfig{}},
		{"long messages", func(o *Options) bool { return rc(o) && o.Op != Atomic },
			func(o *Options) { o.Size, o.MTU, o.Iters = 100_000, ib.MTU1024, 20 }, wrap.FaultConfig{}},
		{"rdma_cm", always, func(o *Options) { o.CM = true }, wrap.FaultConfig{}},
		{"rdma_cm, four queue pairs", bw, func(o *Options) { o.CM, o.NumQP, o.Bidirectional = true, 4, true },
			wrap.FaultConfig{}},
		{"rdma_cm, losses", func(o *Options) bool { return rc(o) && o.Op == Write },
			func(o *Options) { o.CM, o.Size, o.Iters = true, min(o.Size, 1024), 50 }, wrap.FaultConfig{Drop: 0.02}},
		{"losses", rc, func(o *Options) { o.Size, o.Iters = min(o.Size, 1024), 100 }, wrap.FaultConfig{Drop: 0.02}},
	} {
		for _, o := range pairs() {
			if !c.where(&o) {
				continue
			}
			t.Run(o.label()+", "+c.name, func(t *testing.T) {
				simulated(t, func(t *testing.T, p *place) {
					c.change(&o)
					checkPair(t, p, o, c.fault)
				})
			})
		}
	}
}

// checkPair runs a server and a client, and looks at what they have done.
func checkPair(t *testing.T, p *place, o Options, fault wrap.FaultConfig) {
	t.Helper()
	server, client := p.match(t, o, fault)
	if server.Wait(t) != nil || client.Wait(t) != nil {
		t.Fatalf("server: %v; client: %v", server.Wait(t), client.Wait(t))
	}
	checkEnd(t, "server", o, server)
	o.Host = "server"
	checkEnd(t, "client", o, client)
	if o.Service == RC && o.Test == BW && o.Duration == 0 && !o.All && !o.Bidirectional {
		checkData(t, &o, server.mem, client.mem)
	}
}

// TestDuration: a run of a duration measures half of it.
func TestDuration(t *testing.T) {
	for _, o := range pairs() {
		t.Run(o.label(), func(t *testing.T) {
			simulated(t, func(t *testing.T, p *place) {
				o.Duration = 2 * time.Millisecond
				server, client := p.match(t, o, wrap.FaultConfig{})
				if server.Wait(t) != nil || client.Wait(t) != nil {
					t.Fatalf("server: %v; client: %v", server.Wait(t), client.Wait(t))
				}
				r, half := client.rep.Results[0], o.Duration.Seconds()/2
				if r.Iterations == 0 || r.Seconds < 0.9*half || r.Seconds > half ||
					!strings.Contains(client.Out.String(), fmt.Sprint(" ", r.Iterations, " ")) {
					t.Errorf("%d messages in %.6f s, want some in %.6f s; it printed\n%s", r.Iterations, r.Seconds,
						half, client.Out)
				}
			})
		})
	}
}

// checkEnd looks at what an end has reported and printed.
func checkEnd(t *testing.T, name string, o Options, e *end) {
	t.Helper()
	want := len(o.sizes())
	switch {
	case o.passive() && o.Test == Lat:
		want = 0
	case o.passive():
		want = 1
	}
	if len(e.rep.Results) != want {
		t.Fatalf("%s: %d results, want %d", name, len(e.rep.Results), want)
	}
	total := int64(o.Iters * o.NumQP)
	if o.Test == Lat {
		total-- // times between messages
	}
	for _, r := range e.rep.Results {
		if row := fmt.Sprintf("\n %-7d ", r.Size); !strings.Contains(e.Out.String(), row) {
			t.Errorf("%s printed no row for %d bytes:\n%s", name, r.Size, e.Out.String())
		}
		if o.Duration == 0 && r.Iterations+r.Lost != total {
			t.Errorf("%s: %d messages of %d bytes, %d lost; want %d", name, r.Iterations, r.Size, r.Lost, total)
		}
		if r.Lost > 0 && (o.Service == RC || !o.receives()) {
			t.Errorf("%s: %d messages were lost with %v, want none", name, r.Lost, o.Service)
		}
		if o.Duration > 0 {
			continue // see TestDuration
		}
		// In a simulation messages that nobody acknowledges take no time, unless their sender polls.
		atOnce := o.Events && o.Service != RC
		if o.Test == BW && !atOnce && !(r.Bandwidth.Average > 0 && r.MsgRate > 0 &&
			r.Peak >= r.Bandwidth.Average*0.99) {
			t.Errorf("%s: %+v, want all of it, the peak above the average", name, *r.Bandwidth)
		}
		if l := r.Latency; l != nil && !(0 < l.Min && l.Min <= l.Typical && l.Typical <= l.P99 && l.P99 <= l.P999 &&
			l.P999 <= l.Max*1.001) {
			t.Errorf("%s: %+v, want them in this order", name, *l)
		}
	}
	out := e.Out.String()
	for _, text := range []string{o.title(), " local address: LID 0000 QPN 0x", " remote address: LID 0000 QPN 0x"} {
		if !strings.Contains(out, text) {
			t.Errorf("%s printed no %q:\n%s", name, text, out)
		}
	}
}

// checkData compares what lies at both ends with what the messages should have done.
func checkData(t *testing.T, o *Options, server, client *memory) {
	t.Helper()
	n, step := places(o.Size, minCycle)
	for qp := range o.NumQP {
		out, in := client.buf[client.out(qp):][:client.area], server.buf[server.in(qp):][:server.area]
		switch o.Op {
		case Send: // all receives share a place: the last message is there
			last := (o.Iters - 1) % n * step
			if !bytes.Equal(out[last:last+o.Size], in[:o.Size]) {
				t.Errorf("queue pair %d: the last message differs", qp)
			}
		case Atomic:
			checkSum(t, o, server, qp)
		default:
			for i := range n {
				if at := i * step; !bytes.Equal(out[at:at+o.Size], in[at:at+o.Size]) {
					t.Errorf("queue pair %d: place %d differs", qp, i)
				}
			}
		}
	}
}

// checkSum adds up what atomics have changed: FETCH ADD adds 1 each time.
func checkSum(t *testing.T, o *Options, server *memory, qp int) {
	t.Helper()
	before := newMemory(nil, o, minCycle)
	n, step := places(o.Size, minCycle)
	var sum uint64
	for i := range n {
		at := server.in(qp) + i*step
		sum += binary.NativeEndian.Uint64(server.buf[at:]) - binary.NativeEndian.Uint64(before.buf[at:])
	}
	if sum != uint64(o.Iters) {
		t.Errorf("queue pair %d: the words have grown by %d, want %d", qp, sum, o.Iters)
	}
}

// TestNoise: what is sent is not there already, else TestPairs' look at the data
// would be none.
func TestNoise(t *testing.T) {
	o := Defaults(Write, BW)
	m := newMemory(nil, &o, minCycle)
	if bytes.Equal(m.buf[m.out(0):][:64], m.buf[m.in(0):][:64]) {
		t.Error("what is sent is there already")
	}
}

// TestPeerStops: an end whose peer is stopped says so, in every role.
func TestPeerStops(t *testing.T) {
	list := slices.DeleteFunc(pairs(), func(o Options) bool { return o.Service != RC })
	for _, o := range list {
		if o.Op == Send || o.Op == Read {
			o.CM = true
			list = append(list, o)
		}
	}
	for _, o := range list {
		for _, stopServer := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, server stops %v", o.label(), stopServer), func(t *testing.T) {
				simulated(t, func(t *testing.T, p *place) { peerStops(t, p, o, stopServer) })
			})
		}
	}
}

func peerStops(t *testing.T, p *place, o Options, stopServer bool) {
	o.Duration, o.AckTimeout = time.Minute, 22 // 17 s
	serverDev, clientDev := p.open(wrap.FaultConfig{}), p.open(wrap.FaultConfig{})
	server := p.start(t, serverDev, o)
	client := p.startClient(t, server, serverDev, clientDev, o)
	client.Await(t, client.Out, " remote address:")
	stopped, left, dev := client, server, clientDev
	if stopServer {
		stopped, left, dev = server, client, serverDev
	}
	stopped.Stop()
	if o.CM { // which needs the device to say so, as TCP does not
		_ = stopped.Wait(t)
	}
	dev.Close()
	if err := stopped.Wait(t); err == nil {
		t.Error("the end that was stopped reports nothing")
	}
	err := left.Wait(t)
	if !errors.Is(err, ErrPeerLeft) && !errors.Is(err, ErrExchange) {
		t.Errorf("the other end: %v, want %v or %v", err, ErrPeerLeft, ErrExchange)
	}
}

// TestOtherMessages: a peer on rdma_cm that is no perftest is refused, whatever the
// length of what it sends, and one that hangs up is not waited for.
func TestOtherMessages(t *testing.T) {
	for _, c := range []struct {
		name  string
		say   string // hang up for ""
		error string
	}{
		{"a short message", "hello", "a message of 5 bytes came"},
		{"a long one", strings.Repeat("x", cmSlotLen+1), "ended"},
		{"noise", strings.Repeat("x", versionLen), "no version of perftest"},
		{"nothing", "", "ended"},
	} {
		t.Run(c.name, func(t *testing.T) {
			simulated(t, func(t *testing.T, p *place) {
				serverDev, peerDev := p.open(wrap.FaultConfig{}), p.open(wrap.FaultConfig{})
				o := Defaults(Send, BW)
				o.CM = true
				server := p.start(t, serverDev, o)
				server.Await(t, server.Out, "Waiting for client")
				say(t, peerDev, toolstest.Addr(t, serverDev), o.Port, c.say)
				if err := server.Wait(t); !errors.Is(err, ErrExchange) || !strings.Contains(err.Error(), c.error) ||
					!strings.Contains(err.Error(), "ib_send_bw -R") {
					t.Errorf("error %v, want %v that says %q", err, ErrExchange, c.error)
				}
			})
		})
	}
}

// say connects to a server by rdma_cm and says something, or nothing and hangs up.
func say(t *testing.T, dev ib.Device, server netip.Addr, port int, what string) {
	t.Helper()
	cm, err := rdmacm.Open(dev, rdmacm.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cm.Close() })
	conn, err := cm.Dial(t.Context(), netip.AddrPortFrom(server, uint16(port)).String(), rdmacm.Config{
		Cap: ib.QPCap{MaxSendWR: 1, MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1, MaxInline: 128}})
	if err != nil {
		t.Fatal(err)
	}
	if what == "" {
		err = conn.Disconnect(t.Context())
	} else {
		_, err = conn.QP().PostSend([]ib.SendWR{{Opcode: ib.WRSend, Flags: ib.SendInline, Inline: []byte(what)}})
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestNoServer: a client whom nobody waits for says what to do.
func TestNoServer(t *testing.T) {
	simulated(t, func(t *testing.T, p *place) {
		serverDev := p.open(wrap.FaultConfig{})
		cm, err := rdmacm.Open(serverDev, rdmacm.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer cm.Close()
		o := Defaults(Write, BW)
		o.CM, o.Host = true, toolstest.Addr(t, serverDev).String()
		client := p.start(t, p.open(wrap.FaultConfig{}), o)
		if err := client.Wait(t); err == nil || !strings.Contains(err.Error(),
			"start it there first: `goroced perf write bw -R`") {
			t.Errorf("error %v, want %q", err, "start it there first: `goroced perf write bw -R`")
		}
	})
}

// TestSilence: without retransmission a network that loses everything is silence.
func TestSilence(t *testing.T) {
	simulated(t, func(t *testing.T, p *place) {
		o := Defaults(Send, Lat)
		o.Service, o.Timeout, o.Iters = UD, 2*time.Second, 10_000
		server, client := p.match(t, o, wrap.FaultConfig{Drop: 0.5})
		if !errors.Is(server.Wait(t), ErrSilent) && !errors.Is(client.Wait(t), ErrSilent) {
			t.Errorf("server: %v; client: %v; want one to say %q", server.Wait(t), client.Wait(t), ErrSilent)
		}
	})
}

// TestLost: the receiver of an unreliable service counts what was lost.
func TestLost(t *testing.T) {
	for _, service := range []Service{UC, UD} {
		for _, both := range []bool{false, true} {
			t.Run(fmt.Sprintf("%v, both directions %v", service, both), func(t *testing.T) {
				simulated(t, func(t *testing.T, p *place) {
					o := Defaults(Send, BW)
					o.Service, o.Size, o.Bidirectional = service, 512, both
					server, client := p.match(t, o, wrap.FaultConfig{Drop: 0.1})
					if server.Wait(t) != nil || client.Wait(t) != nil {
						t.Fatalf("server: %v; client: %v", server.Wait(t), client.Wait(t))
					}
					if r := server.rep.Results[0]; r.Lost == 0 || r.Lost > int64(o.Iters)/2 {
						t.Errorf("%d messages were lost, with one of ten, want some, at most half of %d", r.Lost,
							o.Iters)
					}
					if both != (client.rep.Results[0].Lost > 0) {
						t.Errorf("the client lost %d, want some: %v", client.rep.Results[0].Lost, both)
					}
				})
			})
		}
	}
}

// TestOtherNumber: an end to which a C tool sends fewer messages than it expects says so.
func TestOtherNumber(t *testing.T) {
	simulated(t, func(t *testing.T, p *place) {
		serverDev, clientDev := p.open(wrap.FaultConfig{}), p.open(wrap.FaultConfig{})
		o := Defaults(Send, BW)
		o.Size, o.mute = 64, true
		server := p.start(t, serverDev, o)
		o.Iters /= 2
		client := p.startClient(t, server, serverDev, clientDev, o)
		if err := server.Wait(t); !errors.Is(err, ErrPeerLeft) || !strings.Contains(err.Error(), "-n") {
			t.Errorf("server: error %v, want %v that names -n", err, ErrPeerLeft)
		}
		_ = client.Wait(t)
	})
}

// TestInterrupted: a client that is interrupted prints what it has measured so far.
func TestInterrupted(t *testing.T) {
	for _, test := range []Test{BW, Lat} {
		simulated(t, func(t *testing.T, p *place) {
			o := Defaults(Send, test)
			o.Iters, o.Size = 1<<30, 8
			slow := wrap.FaultConfig{Latency: 10 * time.Millisecond}
			serverDev, clientDev := p.open(slow), p.open(slow)
			server := p.start(t, serverDev, o)
			client := p.startClient(t, server, serverDev, clientDev, o)
			client.Await(t, client.Log, "messages/s") // the progress of a long run
			client.Stop()
			if err := client.Wait(t); !errors.Is(err, context.Canceled) {
				t.Errorf("%v: got error %v, want %v", test, err, context.Canceled)
			}
			if out := client.Out.String(); !regexp.MustCompile(`(?m)^ *\d+ +\d{3,} `).MatchString(out) {
				t.Errorf("%v: got\n%s\nwant a row of the table", test, out)
			}
			if client.rep == nil || len(client.rep.Results) != 1 || client.rep.Results[0].Iterations < 100 {
				t.Errorf("%v: got the report %+v, want one with the row", test, client.rep)
			}
			server.Stop()
			_ = server.Wait(t)
		})
	}
}

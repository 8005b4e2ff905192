package perf

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/link/wrap"
	"github.com/goroce/goroce/roce/rdmacm"
	"github.com/goroce/goroce/tests/linktest"
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

// startClient starts a client when the server listens.
func startClient(t *testing.T, server *end, dev ib.Device, o Options) *end {
	t.Helper()
	server.Await(t, server.Out, regexp.QuoteMeta(waitingLine))
	return start(t, dev, o)
}

// match runs a server and a client with the same options and returns both.
func match(t *testing.T, o Options, fault wrap.FaultConfig) (server, client *end) {
	t.Helper()
	serverDev := toolstest.Device(t, fault)
	addr := toolstest.Addr(t, serverDev)
	fault.Seed++
	clientDev := toolstest.Device(t, fault)
	o.Port = linktest.Port(t)
	server = start(t, serverDev, o)
	o.Host = addr.String()
	client = startClient(t, server, clientDev, o)
	_, _ = server.Wait(t), client.Wait(t)
	return server, client
}

// ACK timeouts of 1.1 s and, where packets get lost, of 0.27 s: eight of them are longer
// than a machine at work keeps a thread waiting.
const (
	longTimeout = 18
	lossTimeout = 16
)

// pairs are what can be tested.
func pairs() (list []Options) {
	for op := range Op(numOps) {
		for test := range numTests {
			for _, service := range tests[op][test].services {
				o := Defaults(op, test)
				o.Service, o.Iters, o.AckTimeout = service, 200, longTimeout
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
	t.Parallel()
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
		{"duration", always, func(o *Options) { o.Duration = 100 * time.Millisecond }, wrap.FaultConfig{}},
		{"all sizes", func(o *Options) bool { return o.Op != Atomic },
			func(o *Options) { o.All, o.Size, o.Iters = true, 1024, 30 }, wrap.FaultConfig{}},
		{"both directions", bw, func(o *Options) { o.Bidirectional = true }, wrap.FaultConfig{}},
		{"both directions for a while", bw, func(o *Options) {
			o.Bidirectional, o.Duration = true, 100*time.Millisecond
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
			func(o *Options) { o.CM, o.Size, o.Iters, o.AckTimeout = true, min(o.Size, 1024), 50, lossTimeout },
			wrap.FaultConfig{Drop: 0.02, Seed: 9}},
		{"losses", rc, func(o *Options) { o.Size, o.Iters, o.AckTimeout = min(o.Size, 1024), 100, lossTimeout },
			wrap.FaultConfig{Drop: 0.02, Seed: 7}},
	} {
		for _, o := range pairs() {
			if !c.where(&o) {
				continue
			}
			t.Run(o.label()+", "+c.name, func(t *testing.T) {
				t.Parallel()
				c.change(&o)
				server, client := match(t, o, c.fault)
				if server.Wait(t) != nil || client.Wait(t) != nil {
					t.Fatalf("server: %v; client: %v", server.Wait(t), client.Wait(t))
				}
				checkEnd(t, "server", o, server)
				o.Host = "server"
				checkEnd(t, "client", o, client)
				if o.Service == RC && o.Test == BW && o.Duration == 0 && !o.All && !o.Bidirectional {
					checkData(t, &o, server.mem, client.mem)
				}
			})
		}
	}
}

// TestDuration: a run of a duration measures about half of it. One that is too short
// for a machine at work is tried again, longer.
func TestDuration(t *testing.T) {
	t.Parallel()
	for _, o := range pairs() {
		if o.Service != RC {
			continue
		}
		t.Run(o.label(), func(t *testing.T) {
			for d := 200 * time.Millisecond; d < 10*time.Second; d *= 3 {
				o := o
				o.Duration = d
				server, client := match(t, o, wrap.FaultConfig{})
				if server.Wait(t) != nil || client.Wait(t) != nil {
					t.Fatalf("server: %v; client: %v", server.Wait(t), client.Wait(t))
				}
				r := client.rep.Results[0]
				if r.Iterations > 0 && r.Seconds > 0 && r.Seconds < 0.6*d.Seconds() &&
					strings.Contains(client.Out.String(), fmt.Sprint(" ", r.Iterations, " ")) {
					return
				}
				t.Logf("%v: %d messages in %.3f s", d, r.Iterations, r.Seconds)
			}
			t.Error("nothing was measured")
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
			t.Errorf("%s: %d messages were lost with %v", name, r.Lost, o.Service)
		}
		if o.Duration > 0 {
			continue // what there is to measure is up to the machine; see TestDuration
		}
		if o.Test == BW && !(r.Bandwidth.Average > 0 && r.MsgRate > 0 && r.Peak >= r.Bandwidth.Average*0.99) {
			t.Errorf("%s: %+v", name, *r.Bandwidth)
		}
		if l := r.Latency; l != nil && !(0 < l.Min && l.Min <= l.Typical && l.Typical <= l.P99 && l.P99 <= l.P999 &&
			l.P999 <= l.Max*1.001) {
			t.Errorf("%s: %+v", name, *l)
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
	t.Parallel()
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
				t.Parallel()
				o := o
				o.Duration, o.AckTimeout = time.Minute, 22 // 17 s
				serverDev := toolstest.Device(t, wrap.FaultConfig{})
				addr := toolstest.Addr(t, serverDev)
				clientDev := toolstest.Device(t, wrap.FaultConfig{})
				o.Port = linktest.Port(t)
				server := start(t, serverDev, o)
				o.Host = addr.String()
				client := startClient(t, server, clientDev, o)
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
					t.Errorf("the other end: %v", err)
				}
			})
		}
	}
}

// TestServerIsCancelled: a server that waits for a client ends with its context.
func TestServerIsCancelled(t *testing.T) {
	for _, cm := range []bool{false, true} {
		dev := toolstest.Device(t, wrap.FaultConfig{})
		o := Defaults(Write, BW)
		o.Port, o.CM = 0, cm
		server := start(t, dev, o)
		server.Await(t, server.Out, "Waiting for client")
		server.Stop()
		if err := server.Wait(t); !errors.Is(err, context.Canceled) {
			t.Errorf("rdma_cm %v: error %v, want %v", cm, err, context.Canceled)
		}
	}
}

// TestOtherMessages: a peer on rdma_cm that is no perftest is refused, whatever the
// length of what it sends, and one that hangs up is not waited for.
func TestOtherMessages(t *testing.T) {
	t.Parallel()
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
			t.Parallel()
			serverDev := toolstest.Device(t, wrap.FaultConfig{})
			addr := toolstest.Addr(t, serverDev)
			peerDev := toolstest.Device(t, wrap.FaultConfig{})
			o := Defaults(Send, BW)
			o.CM, o.Port = true, 18515
			server := start(t, serverDev, o)
			server.Await(t, server.Out, "Waiting for client")
			peer, err := rdmacm.Open(peerDev, rdmacm.Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer peer.Close()
			conn, err := peer.Dial(t.Context(), net.JoinHostPort(addr.String(), "18515"), rdmacm.Config{
				Cap: ib.QPCap{MaxSendWR: 1, MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1, MaxInline: 128}})
			if err != nil {
				t.Fatal(err)
			}
			if c.say == "" {
				err = conn.Disconnect(t.Context())
			} else {
				_, err = conn.QP().PostSend([]ib.SendWR{{Opcode: ib.WRSend, Flags: ib.SendInline,
					Inline: []byte(c.say)}})
			}
			if err != nil {
				t.Fatal(err)
			}
			if err := server.Wait(t); !errors.Is(err, ErrExchange) || !strings.Contains(err.Error(), c.error) ||
				!strings.Contains(err.Error(), "ib_send_bw -R") {
				t.Errorf("error %v, want %v that says %q", err, ErrExchange, c.error)
			}
		})
	}
}

// TestNoServer: a client whom nobody waits for says what to do.
func TestNoServer(t *testing.T) {
	serverDev := toolstest.Device(t, wrap.FaultConfig{})
	addr := toolstest.Addr(t, serverDev)
	cm, err := rdmacm.Open(serverDev, rdmacm.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer cm.Close()
	dev := toolstest.Device(t, wrap.FaultConfig{})
	o := Defaults(Write, BW)
	o.CM, o.Host = true, addr.String()
	client := start(t, dev, o)
	if err := client.Wait(t); err == nil || !strings.Contains(err.Error(),
		"start it there first: `goroced perf write bw -R`") {
		t.Errorf("error %v", err)
	}
}

// TestSilence: without retransmission a network that loses everything is silence.
func TestSilence(t *testing.T) {
	t.Parallel()
	o := Defaults(Send, Lat)
	o.Service, o.Timeout, o.Iters = UD, 2*time.Second, 10_000
	server, client := match(t, o, wrap.FaultConfig{Drop: 0.5, Seed: 3})
	if !errors.Is(server.Wait(t), ErrSilent) && !errors.Is(client.Wait(t), ErrSilent) {
		t.Errorf("server: %v; client: %v; one should say %q", server.Wait(t), client.Wait(t), ErrSilent)
	}
}

// TestLost: the receiver of an unreliable service counts what was lost.
func TestLost(t *testing.T) {
	t.Parallel()
	for _, service := range []Service{UC, UD} {
		for _, both := range []bool{false, true} {
			t.Run(fmt.Sprintf("%v, both directions %v", service, both), func(t *testing.T) {
				t.Parallel()
				o := Defaults(Send, BW)
				o.Service, o.Size, o.Bidirectional = service, 512, both
				server, client := match(t, o, wrap.FaultConfig{Drop: 0.1, Seed: 5})
				if server.Wait(t) != nil || client.Wait(t) != nil {
					t.Fatalf("server: %v; client: %v", server.Wait(t), client.Wait(t))
				}
				if r := server.rep.Results[0]; r.Lost == 0 || r.Lost > int64(o.Iters)/2 {
					t.Errorf("%d of %d messages were lost, with one of ten", r.Lost, o.Iters)
				}
				if both != (client.rep.Results[0].Lost > 0) {
					t.Errorf("the client lost %d", client.rep.Results[0].Lost)
				}
			})
		}
	}
}

// TestOtherNumber: ends that do not send and expect the same number say so.
func TestOtherNumber(t *testing.T) {
	t.Parallel()
	serverDev := toolstest.Device(t, wrap.FaultConfig{})
	addr := toolstest.Addr(t, serverDev)
	clientDev := toolstest.Device(t, wrap.FaultConfig{})
	o := Defaults(Send, BW)
	o.Port, o.Size = linktest.Port(t), 64
	server := start(t, serverDev, o)
	o.Host, o.Iters = addr.String(), o.Iters/2
	client := startClient(t, server, clientDev, o)
	if err := server.Wait(t); !errors.Is(err, ErrPeerLeft) || !strings.Contains(err.Error(), "-n") {
		t.Errorf("server: error %v, want %v that names -n", err, ErrPeerLeft)
	}
	_ = client.Wait(t)
}

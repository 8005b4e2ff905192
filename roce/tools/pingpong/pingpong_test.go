package pingpong

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce"
	"github.com/goroce/goroce/roce/host"
	"github.com/goroce/goroce/roce/link/linktest"
	"github.com/goroce/goroce/roce/link/wrap"
)

// openDevice opens a device on a loopback address of its own.
func openDevice(t *testing.T, fault wrap.FaultConfig) (*roce.Device, netip.Addr) {
	t.Helper()
	addr := linktest.Loopback()
	dev, err := host.Open(host.Options{Link: "udp", Addrs: []netip.Addr{addr}, Fault: fault})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dev.Close() })
	return dev, addr
}

// output is what an end printed; the test reads while the end writes.
type output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

// end is an end under way.
type end struct {
	out, log output
	res      Result
	err      error
	done     chan struct{}
}

// start begins an end. A server is listening when start returns.
func start(t *testing.T, dev ib.Device, o Options) *end {
	t.Helper()
	e := &end{done: make(chan struct{})}
	o.Out, o.Log = &e.out, &e.log
	go func() {
		defer close(e.done)
		e.res, e.err = Run(t.Context(), dev, o)
	}()
	return e
}

func (e *end) wait(t *testing.T) error {
	t.Helper()
	select {
	case <-e.done:
	case <-time.After(time.Minute):
		t.Fatal("no end after a minute")
	}
	return e.err
}

// match runs a server and a client with the same options and returns both.
func match(t *testing.T, o Options, fault wrap.FaultConfig) (server, client *end) {
	t.Helper()
	serverDev, addr := openDevice(t, fault)
	fault.Seed++
	clientDev, _ := openDevice(t, fault)
	o.Port = freePort(t)
	server = start(t, serverDev, o)
	o.Host = addr.String()
	client = startClient(t, clientDev, o)
	return server, client
}

// startClient starts a client as soon as the server listens.
func startClient(t *testing.T, dev ib.Device, o Options) *end {
	t.Helper()
	for range 1000 {
		c := start(t, dev, o)
		if err := c.wait(t); err == nil || !strings.Contains(err.Error(), "refused") {
			return c
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.Fatal("the server does not listen")
	return nil
}

var lines = regexp.MustCompile(`^  local address:  LID 0x0000, QPN 0x[0-9a-f]{6}, PSN 0x[0-9a-f]{6}, GID ::ffff:127\.\d+\.\d+\.\d+
  remote address: LID 0x0000, QPN 0x[0-9a-f]{6}, PSN 0x[0-9a-f]{6}, GID ::ffff:127\.\d+\.\d+\.\d+
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
		{"1 MiB", func(o *Options) { o.Size, o.Iters, o.AckTimeout = 1<<20, 2, 17 }, wrap.FaultConfig{}},
		{"MTU 256", func(o *Options) { o.MTU = ib.MTU256 }, wrap.FaultConfig{}},
		{"MTU 4096", func(o *Options) { o.MTU, o.Size = ib.MTU4096, 9000 }, wrap.FaultConfig{}},
		{"events", func(o *Options) { o.Events = true }, wrap.FaultConfig{}},
		{"one receive", func(o *Options) { o.RxDepth = 1 }, wrap.FaultConfig{}},
		{"losses", func(o *Options) { o.AckTimeout = 13 }, wrap.FaultConfig{Drop: 0.05, Seed: 7}},
		{"losses, events, long", func(o *Options) { o.AckTimeout, o.Size, o.Iters, o.Events = 13, 20_000, 20, true }, wrap.FaultConfig{Drop: 0.05, Seed: 7}},
	} {
		for _, check := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, check %v", c.name, check), func(t *testing.T) {
				o := Defaults(RC)
				o.Iters, o.Check = 100, check
				c.change(&o)
				server, client := match(t, o, c.fault)
				for name, e := range map[string]*end{"server": server, "client": client} {
					if err := e.wait(t); err != nil {
						t.Errorf("%s: %v", name, err)
						continue
					}
					m := lines.FindStringSubmatch(e.out.String())
					if m == nil || m[1] != fmt.Sprint(2*o.Size*o.Iters) || m[2] != fmt.Sprint(o.Iters) {
						t.Errorf("%s printed:\n%s", name, e.out.String())
					}
				}
			})
		}
	}
}

// TestMismatch: ends that do not agree fail, both, and say what to look at.
func TestMismatch(t *testing.T) {
	for _, c := range []struct {
		name   string
		server func(*Options)
		client func(*Options)
		want   string // said by either
	}{
		{"client's messages are longer", func(o *Options) { o.Size = 1000 }, func(o *Options) { o.Size = 2000 }, "both ends need the same size (-s)"},
		{"client's messages are shorter", func(o *Options) { o.Size = 2000 }, func(o *Options) { o.Size = 1000 }, "both ends need the same -s"},
		{"only the server checks", func(o *Options) { o.Check = true }, func(*Options) {}, "the client must run with -c too"},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := Defaults(RC)
			o.Port, o.Timeout = freePort(t), 500*time.Millisecond
			co := o
			c.server(&o)
			c.client(&co)
			serverDev, addr := openDevice(t, wrap.FaultConfig{})
			clientDev, _ := openDevice(t, wrap.FaultConfig{})
			server := start(t, serverDev, o)
			co.Host = addr.String()
			client := startClient(t, clientDev, co)
			said := ""
			for name, e := range map[string]*end{"server": server, "client": client} {
				if err := e.wait(t); err == nil {
					t.Errorf("%s: no error", name)
				} else {
					said += err.Error() + "\n"
				}
			}
			if !strings.Contains(said, c.want) {
				t.Errorf("nobody said %q:\n%s", c.want, said)
			}
		})
	}
}

// TestOnlyTheClientChecks: the server returns what it got, as the C tool's does.
func TestOnlyTheClientChecks(t *testing.T) {
	o := Defaults(RC)
	o.Port, o.Size, o.Iters = freePort(t), 9000, 50
	serverDev, addr := openDevice(t, wrap.FaultConfig{})
	clientDev, _ := openDevice(t, wrap.FaultConfig{})
	server := start(t, serverDev, o)
	o.Host, o.Check = addr.String(), true
	client := startClient(t, clientDev, o)
	if err := errors.Join(server.wait(t), client.wait(t)); err != nil {
		t.Error(err)
	}
}

// TestDeviceIsLeftClean: a run frees all that it made, so that another may follow.
func TestDeviceIsLeftClean(t *testing.T) {
	dev, addr := openDevice(t, wrap.FaultConfig{})
	other, _ := openDevice(t, wrap.FaultConfig{})
	for range 3 {
		o := Defaults(RC)
		o.Port, o.Iters = freePort(t), 10
		server := start(t, dev, o)
		o.Host = addr.String()
		client := startClient(t, other, o)
		if err := errors.Join(server.wait(t), client.wait(t)); err != nil {
			t.Fatal(err)
		}
	}
	if st := dev.Stats(); st.RetryExceeded != 0 {
		t.Errorf("%d retries exceeded", st.RetryExceeded)
	}
}

func TestServerIsCancelled(t *testing.T) {
	dev, _ := openDevice(t, wrap.FaultConfig{})
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	o := Defaults(RC)
	o.Port = 0
	if _, err := Run(ctx, dev, o); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error %v, want %v", err, context.DeadlineExceeded)
	}
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
		g := &game{endpoint: &endpoint{o: &Options{Iters: 10, Host: c.host, NumQP: c.numQP}}, sent: c.sent, received: c.received}
		if got := g.peerHasLeft(&ib.WC{Status: c.status}); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}

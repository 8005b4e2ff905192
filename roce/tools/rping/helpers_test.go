package rping

import (
	"bytes"
	"context"
	"net/netip"
	"regexp"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce"
	"github.com/goroce/goroce/roce/host"
	"github.com/goroce/goroce/roce/link/linktest"
	"github.com/goroce/goroce/roce/link/mem"
	"github.com/goroce/goroce/roce/link/wrap"
	"github.com/goroce/goroce/roce/rdmacm"
)

// patience is when a test gives up.
const patience = time.Minute

// udpDevice opens a device on a loopback address of its own.
func udpDevice(t *testing.T, fault wrap.FaultConfig) ib.Device {
	t.Helper()
	dev, err := host.Open(host.Options{Link: "udp", Addrs: []netip.Addr{linktest.Loopback()}, Fault: fault})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dev.Close() })
	return dev
}

// memDevice opens a device on a network in memory.
func memDevice(t *testing.T, network *mem.Network, addr string) ib.Device {
	t.Helper()
	l := network.Open([]ib.GID{ib.GIDFromAddr(netip.MustParseAddr(addr))}, mem.Options{})
	dev, err := roce.Open(wrap.Seal(wrap.Turn(l)), roce.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dev.Close() })
	return dev
}

// addrOf is the first address of a device.
func addrOf(t *testing.T, dev ib.Device) string {
	t.Helper()
	gids, err := dev.GIDs(1)
	if err != nil {
		t.Fatal(err)
	}
	return gids[0].GID.Addr().String()
}

// output is what an end wrote; others read it meanwhile.
type output struct {
	mu    sync.Mutex
	b     bytes.Buffer
	grown chan struct{} // has an element when something was written since it was taken
}

func newOutput() *output { return &output{grown: make(chan struct{}, 1)} }

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	select {
	case o.grown <- struct{}{}:
	default:
	}
	return o.b.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

// end is an end under way.
type end struct {
	out, log *output
	err      error
	done     chan struct{}
	stop     context.CancelFunc
}

// start begins an end.
func start(t *testing.T, dev ib.Device, o Options) *end {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	e := &end{out: newOutput(), log: newOutput(), done: make(chan struct{}), stop: stop}
	o.Out, o.Log = e.out, e.log
	go func() {
		defer close(e.done)
		e.err = Run(ctx, dev, o)
	}()
	t.Cleanup(func() { stop(); <-e.done })
	return e
}

func (e *end) wait(t *testing.T) error {
	t.Helper()
	select {
	case <-e.done:
	case <-time.After(patience):
		t.Fatalf("no end after %v; log:\n%s", patience, e.log)
	}
	return e.err
}

// await returns what matches in the output as soon as something does.
func (e *end) await(t *testing.T, o *output, pattern string) []string {
	t.Helper()
	re := regexp.MustCompile(pattern)
	limit := time.After(patience)
	for {
		if m := re.FindStringSubmatch(o.String()); m != nil {
			return m
		}
		select {
		case <-o.grown:
		case <-e.done:
			if m := re.FindStringSubmatch(o.String()); m != nil {
				return m
			}
			t.Fatalf("ended with %v and without %q; it wrote\n%s", e.err, pattern, o)
		case <-limit:
			t.Fatalf("no %q after %v; it wrote\n%s", pattern, patience, o)
		}
	}
}

// startServer begins a server and returns its options for clients.
func startServer(t *testing.T, dev ib.Device, o Options) (*end, Options) {
	t.Helper()
	o.Server, o.Port = true, 0
	server := start(t, dev, o)
	port, err := strconv.Atoi(server.await(t, server.log, `waiting for a client on \S+:(\d+):`)[1])
	if err != nil {
		t.Fatal(err)
	}
	o.Server, o.Persistent, o.Addr, o.Port = false, false, addrOf(t, dev), port
	return server, o
}

// connect returns a client that is connected and does what the test says.
func connect(t *testing.T, dev ib.Device, o Options) *client {
	t.Helper()
	cm, err := rdmacm.Open(dev, rdmacm.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cm.Close() })
	o.Log = newOutput()
	c, err := newClient(dev, &o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.close() })
	if err := c.connect(t.Context(), cm); err != nil {
		t.Fatal(err)
	}
	return c
}

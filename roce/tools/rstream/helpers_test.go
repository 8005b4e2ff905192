package rstream

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
	"github.com/goroce/goroce/roce/host"
	"github.com/goroce/goroce/roce/link/linktest"
	"github.com/goroce/goroce/roce/link/wrap"
	"github.com/goroce/goroce/roce/rdmacm"
	"github.com/goroce/goroce/roce/rsocket"
)

// patience is when a test gives up.
const patience = time.Minute

// device opens a device on a loopback address of its own.
func device(t *testing.T, fault wrap.FaultConfig) ib.Device {
	t.Helper()
	dev, err := host.Open(host.Options{Link: "udp", Addrs: []netip.Addr{linktest.Loopback()}, Fault: fault})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dev.Close() })
	return dev
}

// addrOf is the first address of a device.
func addrOf(t *testing.T, dev ib.Device) netip.Addr {
	t.Helper()
	gids, err := dev.GIDs(1)
	if err != nil {
		t.Fatal(err)
	}
	return gids[0].GID.Addr()
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
		t.Fatalf("no end after %v; output:\n%s%s", patience, e.out, e.log)
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
	o.Port = 0
	server := start(t, dev, o)
	port, err := strconv.Atoi(server.await(t, server.log, `waiting for a client on \S+:(\d+):`)[1])
	if err != nil {
		t.Fatal(err)
	}
	o.Server, o.Port = addrOf(t, dev).String(), port
	return server, o
}

// dial returns a connection that does what the test says.
func dial(t *testing.T, o Options) *rsocket.Conn {
	t.Helper()
	cm, err := rdmacm.Open(device(t, wrap.FaultConfig{}), rdmacm.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cm.Close() })
	conn, err := rsocket.Dial(t.Context(), cm, o.hostPort(o.Server), o.socket())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

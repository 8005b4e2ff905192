// Package toolstest runs the ends of tools in tests: it opens a device for each end and records its output.
package toolstest

import (
	"bytes"
	"context"
	"io"
	"net/netip"
	"regexp"
	"sync"
	"testing"
	"time"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce"
	"github.com/goroce/goroce/roce/host"
	"github.com/goroce/goroce/roce/link/wrap"
	"github.com/goroce/goroce/roce/simtest"
	"github.com/goroce/goroce/tests/linktest"
)

// Patience is how long a test waits before it fails.
const Patience = time.Minute

// Device opens a device over UDP on a loopback address of its own, for as long as
// the test runs.
func Device(t *testing.T, fault wrap.FaultConfig) roce.Device {
	t.Helper()
	dev, err := host.Open(host.Options{Link: "udp", Addrs: []netip.Addr{linktest.Loopback()}, Fault: fault})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dev.Close() })
	return dev
}

// Simulate runs a test of tools in virtual time (package simtest). open returns the device of a host that it has not
// returned yet, of sixteen; fault is what happens to what the host sends.
func Simulate(t *testing.T, test func(t *testing.T, open func(fault wrap.FaultConfig) roce.Device)) {
	t.Helper()
	simtest.Run(t, simtest.Config{Hosts: 16}, func(t *testing.T, n *simtest.Net) {
		next := 0
		test(t, func(fault wrap.FaultConfig) roce.Device {
			h := n.Hosts[next]
			next++
			h.SetFault(fault)
			return h.Device()
		})
	})
}

// Yield lets time pass in a simulation, for loops that poll.
func Yield() { time.Sleep(20 * time.Microsecond) }

// Addr returns the first address of a device.
func Addr(t *testing.T, dev ib.Device) netip.Addr {
	t.Helper()
	gids, err := dev.GIDs(1)
	if err != nil {
		t.Fatal(err)
	}
	return gids[0].GID.Addr()
}

// Output is what an end wrote; others read it meanwhile.
type Output struct {
	mu    sync.Mutex
	b     bytes.Buffer
	grown chan struct{} // has an element when something was written since the last read
}

// NewOutput returns an empty output.
func NewOutput() *Output { return &Output{grown: make(chan struct{}, 1)} }

func (o *Output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	select {
	case o.grown <- struct{}{}:
	default:
	}
	return o.b.Write(p)
}

func (o *Output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

// End is a running end of a tool.
type End struct {
	Out, Log *Output
	Stop     context.CancelFunc
	err      error
	done     chan struct{}
}

// Start starts an end: run is the tool. When the test ends, Start stops it and waits for it.
func Start(t *testing.T, run func(ctx context.Context, out, log io.Writer) error) *End {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	e := &End{Out: NewOutput(), Log: NewOutput(), done: make(chan struct{}), Stop: stop}
	go func() {
		defer close(e.done)
		e.err = run(ctx, e.Out, e.Log)
	}()
	t.Cleanup(func() { stop(); <-e.done })
	return e
}

// Wait waits for the end and returns its error.
func (e *End) Wait(t *testing.T) error {
	t.Helper()
	select {
	case <-e.done:
	case <-time.After(Patience):
		t.Fatalf("no end after %v; output:\n%s%s", Patience, e.Out, e.Log)
	}
	return e.err
}

// Await waits until an output matches the pattern, and returns the match.
func (e *End) Await(t *testing.T, o *Output, pattern string) []string {
	t.Helper()
	re := regexp.MustCompile(pattern)
	limit := time.After(Patience)
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
			t.Fatalf("no %q after %v; it wrote\n%s", pattern, Patience, o)
		}
	}
}

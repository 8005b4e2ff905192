package simtest

import (
	"flag"
	"fmt"
	"regexp"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce"
	"github.com/goroce/goroce/roce/link"
	"github.com/goroce/goroce/roce/link/mem"
	"github.com/goroce/goroce/roce/link/wrap"
)

var (
	onlySeed = flag.Uint64("simtest.seed", 0, "do simulations with this seed only; 0: with all of theirs")
	seeds    = flag.Int("simtest.seeds", 0, "do this many simulations where a test does several; 0: its own number")
)

// Config describes a simulation. The zero value is two hosts on a good network.
type Config struct {
	Hosts int    // 2 if 0, 250 at most
	Seed  uint64 // 1 if 0. It determines the numbers of the devices, and the faults.
	// Limit is the virtual time after which a simulation that has not ended fails, with a panic; DefaultLimit if 0. A
	// program that waits in vain would go on for ever where a timer goes off now and then.
	Limit time.Duration

	Seeds int // Run does this many simulations, with the seeds Seed, Seed+1 and so on; 1 if 0

	// Fault is what happens to the frames that a host sends, Inbound to those that arrive at a host. Their Seed,
	// OnSend, OnRecv and OnDrop are set by Run. A Fault.Latency of 0 stands for DefaultLatency.
	Fault, Inbound wrap.FaultConfig

	// Device has the options of all devices. Their Manual, Seed and Clock are set by Run.
	Device roce.Options
	// Link has the options of all links: MTU, length of runs, and the queue of frames that a host has not received yet.
	Link mem.Options
	// Wrap, if set, returns the link on which a host's device is opened, in place of l: for tests that watch frames or
	// change them. They have no ICRC yet where they are sent, and none any more where they arrive.
	Wrap func(host int, l link.Link) link.Link
}

// DefaultLimit is the virtual time that a simulation may take.
const DefaultLimit = 10 * time.Minute

// DefaultLatency is the time that a frame takes from host to host.
const DefaultLatency = 10 * time.Microsecond

// Net is a simulation that is under way. Its methods may be called by any goroutine of the simulation.
type Net struct {
	Hosts []*Host

	t      *testing.T
	config Config
	origin time.Time
	wire   *mem.Network
	record recorder
	loop   loop

	mu sync.Mutex // held by the loop while a device takes a turn; guards the hosts' state
}

// Run does the simulations that c asks for, one after the other, and calls f in each. The first that fails ends the
// test. f must use the T that it is called with: its context ends with the simulation, and its cleanup functions run in
// it, before the hosts are closed.
func Run(t *testing.T, c Config, f func(*testing.T, *Net)) {
	t.Helper()
	first, n := max(c.Seed, 1), max(c.Seeds, 1)
	if *seeds > 0 && c.Seeds > 1 {
		n = *seeds
	}
	if *onlySeed != 0 {
		first, n = *onlySeed, 1
	}
	defer oneAtATime()()
	for i := range uint64(n) {
		c.Seed = first + i
		once(t, c, f)
	}
}

// once does one simulation. If that panics, because all its goroutines wait, it says how to repeat it; one that fails
// says so itself (Net.close).
func once(t *testing.T, c Config, f func(*testing.T, *Net)) {
	ended := false
	defer func() {
		if !ended && !t.Failed() {
			t.Logf("repeat it: %s", again(t.Name(), c.Seed))
		}
	}()
	synctest.Test(t, func(t *testing.T) { simulate(t, c, f) })
	ended = true
}

// processors is how many simulations are under way, and the GOMAXPROCS from before the first.
var processors struct {
	sync.Mutex
	users, before int
}

// oneAtATime makes the process use one processor until the function that it returns is called: the Go scheduler then
// runs goroutines in the order in which they are woken.
func oneAtATime() (done func()) {
	p := &processors
	p.Lock()
	defer p.Unlock()
	if p.users++; p.users == 1 {
		p.before = runtime.GOMAXPROCS(1)
	}
	return func() {
		p.Lock()
		defer p.Unlock()
		if p.users--; p.users == 0 {
			runtime.GOMAXPROCS(p.before)
		}
	}
}

// again returns the command that does the simulation with this seed again, of the test with this name.
func again(name string, seed uint64) string {
	tested := "."
	if info, ok := debug.ReadBuildInfo(); ok {
		tested = strings.TrimSuffix(info.Path, ".test")
	}
	var pattern []string // one for each level of subtests
	for part := range strings.SplitSeq(name, "/") {
		pattern = append(pattern, "^"+strings.ReplaceAll(regexp.QuoteMeta(part), "'", ".")+"$")
	}
	return fmt.Sprintf("go test %s -run '%s' -simtest.seed=%d", tested, strings.Join(pattern, "/"), seed)
}

// simulate runs f in a bubble.
func simulate(t *testing.T, c Config, f func(*testing.T, *Net)) {
	n := &Net{t: t, config: c, origin: time.Now(), wire: mem.NewNetwork()}
	n.loop.init()
	for i := range max(c.Hosts, 2) {
		n.Hosts = append(n.Hosts, newHost(n, i))
	}
	go n.run()
	t.Cleanup(n.close)
	f(t, n)
}

// close closes the hosts, ends the loop, and says more about a failure.
func (n *Net) close() {
	for _, h := range n.Hosts {
		h.close()
	}
	n.loop.end()
	time.Sleep(time.Minute) // the Go runtime keeps stopped timers, and what they refer to, until their time has come
	if n.t.Failed() {
		n.t.Logf("repeat it: %s\nthe last packets with seed %d:\n%s", again(n.t.Name(), n.config.Seed), n.config.Seed,
			n.record.ladder(n))
	}
	n.t = nil // it refers to the cleanup functions of the test, and memory of devices may be kept after the end
}

// Seed returns the seed of the simulation.
func (n *Net) Seed() uint64 { return n.config.Seed }

// Now returns the time since the simulation began.
func (n *Net) Now() ib.Instant { return ib.Instant(time.Since(n.origin)) }

// Digest identifies the packets that hosts have sent so far: when, to whom, how long they are, and their base transport
// headers. Extension headers, payload and ICRC do not count, as addresses of memory, which differ from run to run, may
// be in them.
func (n *Net) Digest() string { return fmt.Sprintf("%x", n.record.sum()) }

package server

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/goroce/goroce/tests/require"
)

var (
	walkSeeds = flag.Int("walk.seeds", require.Rounds(6, 24), "how many random walks TestClientWalk takes")
	walkFirst = flag.Uint64("walk.first", 1, "the first of them")
	walkSeed  = flag.Uint64("walk.seed", 0, "take only this walk")
)

// walkSteps is how many steps a walk has.
const walkSteps = 4000

// TestClientWalk takes random steps with several clients of one server, through its socket, the
// shared rings and doorbells, with memfds and memory of the process, until they die. A model knows
// which object is in use, and what bytes every completion promises. Afterwards the server must
// hold nothing, and memory that no request has named must be untouched. An access of the server
// to memory after its unmapping ends the test (GuardMappings).
//
// In three of four walks everything is in virtual time (testing/synctest): the walk takes the two devices' turns, and
// after each all goroutines of sessions and clients run until they wait, so that the seed determines what happens. In
// the other walks the devices have goroutines of their own, and the sockets are real: clients die in the middle of
// turns.
func TestClientWalk(t *testing.T) {
	first, n := *walkFirst, *walkSeeds
	if *walkSeed != 0 {
		first, n = *walkSeed, 1
	}
	var sum walkTotals
	for seed := first; seed < first+uint64(n); seed++ {
		fmt.Fprintf(os.Stderr, "TestClientWalk: -walk.seed=%d\n", seed) // shown if the process ends
		ok := t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			sum.add(takeWalk(t, &dice{rng: rand.New(rand.NewPCG(seed, 0))}, seed%4 == 0, walkSteps))
		})
		if !ok {
			t.Fatalf("replay it with: go test ./roce/daemon/server -run TestClientWalk -walk.seed=%d", seed)
		}
	}
	t.Logf("%+v", sum)
	if n >= 20 {
		sum.check(t)
	}
}

// TestWalkRepeats: in virtual time a walk with the same seed does the same.
func TestWalkRepeats(t *testing.T) {
	walk := func() walkTotals { return takeWalk(t, &dice{rng: rand.New(rand.NewPCG(1, 0))}, false, walkSteps/2) }
	if first, again := walk(), walk(); first != again {
		t.Errorf("the first time %+v, want %+v as the second", first, again)
	}
}

// FuzzClientWalk takes the walks of TestClientWalk that the bytes of its input choose.
func FuzzClientWalk(f *testing.F) {
	for seed := range byte(3) {
		input := make([]byte, 2000)
		_, _ = rand.NewChaCha8([32]byte{seed}).Read(input)
		f.Add(seed == 0, input)
	}
	f.Fuzz(func(t *testing.T, live bool, input []byte) {
		takeWalk(t, &dice{data: input[:min(len(input), 1<<14)]}, live, walkSteps)
	})
}

// dice make the choices of a walk: by a random source, or by bytes as long as there are some.
type dice struct {
	rng  *rand.Rand
	data []byte
}

// n returns a number below most.
func (d *dice) n(most int) int {
	if d.rng != nil {
		return d.rng.IntN(most)
	}
	v, size := 0, 1
	if most > 256 {
		size = 2
	}
	for range min(size, len(d.data)) {
		v, d.data = v<<8|int(d.data[0]), d.data[1:]
	}
	return v % most
}

// fork returns dice for a part of a walk that may take any number of choices.
func (d *dice) fork() *dice {
	if d.rng != nil {
		return &dice{rng: rand.New(rand.NewPCG(d.rng.Uint64(), 0))}
	}
	n := min(64, len(d.data))
	part := &dice{data: d.data[:n]}
	d.data = d.data[n:]
	return part
}

// one returns true once in n times.
func (d *dice) one(n int) bool { return d.n(n) == n-1 }

// cast reports that no choices are left.
func (d *dice) cast() bool { return d.rng == nil && len(d.data) == 0 }

// walkTotals count what happened in walks.
type walkTotals struct {
	received, written, read, atomics, datagrams, failed, died, busy, refused, revoked, stalled int
	bound, byWindow, invalidated, denied                                                       int
}

func (a *walkTotals) add(b walkTotals) {
	a.received += b.received
	a.written += b.written
	a.read += b.read
	a.failed += b.failed
	a.died += b.died
	a.busy += b.busy
	a.refused += b.refused
	a.revoked += b.revoked
	a.stalled += b.stalled
	a.atomics += b.atomics
	a.datagrams += b.datagrams
	a.bound += b.bound
	a.byWindow += b.byWindow
	a.invalidated += b.invalidated
	a.denied += b.denied
}

// check fails the test if the walks missed something.
func (a *walkTotals) check(t *testing.T) {
	if min(a.received, a.written, a.read, a.failed, a.died, a.busy, a.refused, a.revoked, a.atomics,
		a.datagrams, a.bound, a.byWindow, a.invalidated, a.denied) < 10 {
		t.Errorf("the walks did not go everywhere: %+v, want at least 10 of each", *a)
	}
}

// takeWalk takes one walk and checks that it leaves nothing behind.
func takeWalk(t *testing.T, d *dice, live bool, steps int) walkTotals {
	before := walkRemains()
	var totals walkTotals
	walk := func(t *testing.T) {
		w := newWalkWorld(t, d, live)
		for i := 0; i < steps && !d.cast() && !t.Failed(); i++ {
			w.step()
		}
		w.finish()
		totals = w.totals
	}
	if live {
		walk(t)
		before.check(t, 30*time.Second)
	} else {
		synctest.Test(t, walk)
		before.check(t, 5*time.Second) // all goroutines have ended
	}
	return totals
}

// step does one thing.
func (w *walkWorld) step() {
	sum := 0
	for _, a := range walkActions {
		sum += a.weight
	}
	at := w.n(sum)
	for _, a := range walkActions {
		if at -= a.weight; at < 0 {
			a.do(w)
			return
		}
	}
}

// with returns a step that a client takes.
func with(do func(*walkClient)) func(*walkWorld) {
	return func(w *walkWorld) {
		if c := w.client(); c != nil {
			do(c)
		}
	}
}

var walkActions = []struct {
	weight int
	do     func(*walkWorld)
}{
	{400, (*walkWorld).turn},
	{40, (*walkWorld).pass},
	{8, (*walkWorld).join},
	{1, with((*walkClient).die)},
	{2, (*walkWorld).rough},
	{20, with((*walkClient).make)},
	{30, with((*walkClient).register)},
	{6, with((*walkClient).reregister)},
	{10, with((*walkClient).refused)},
	{25, (*walkWorld).connect},
	{150, with((*walkClient).postRecv)},
	{150, with((*walkClient).postSend)},
	{40, with((*walkClient).poll)},
	{30, with((*walkClient).wait)},
	{6, with((*walkClient).close)},
	{4, with((*walkClient).closeSRQ)},
	{3, with((*walkClient).modify)},
	{5, with((*walkClient).resize)},
	{2, with((*walkClient).stall)},
	{3, with((*walkClient).modifyAH)},
	{2, with((*walkClient).closeAH)},
	{40, with((*walkClient).bind)},
	{10, with((*walkClient).invalidate)},
	{3, with((*walkClient).closeWindow)},
}

// walkRemaining counts what a server and its clients could leave behind in their process.
type walkRemaining struct{ goroutines, fds, maps int }

func (a walkRemaining) covers(b walkRemaining) bool {
	return b.goroutines <= a.goroutines && b.fds <= a.fds && b.maps <= a.maps
}

// check waits until no more is left than before.
func (a walkRemaining) check(t *testing.T, patience time.Duration) {
	left := walkRemains()
	for end := time.Now().Add(patience); !a.covers(left); left = walkRemains() {
		if time.Now().After(end) {
			stacks := make([]byte, 1<<16)
			t.Fatalf("before the walk %+v, after it %+v\n%s", a, left, stacks[:runtime.Stack(stacks, true)])
		}
		runtime.GC() // unmaps clients' rings to which nothing refers any more
	}
}

func walkRemains() walkRemaining {
	if r, w, err := os.Pipe(); err == nil { // the runtime has its own descriptors from now on
		_, _ = r.Close(), w.Close()
	}
	fds, _ := os.ReadDir("/proc/self/fd")
	maps, _ := os.ReadFile("/proc/self/maps")
	return walkRemaining{runtime.NumGoroutine(), len(fds), strings.Count(string(maps), "memfd")}
}

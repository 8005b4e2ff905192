package soak

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/goroce/goroce/roce/daemon/dropin"
	"github.com/goroce/goroce/tests/gobuild"
	"github.com/goroce/goroce/tests/linktest"
	"github.com/goroce/goroce/tests/require"
)

var (
	soakTime = flag.Duration("soak.time", 20*time.Second, "how long TestSoak plays, some 20 s at least")
	soakSeed = flag.Uint64("soak.seed", 0, "seed of TestSoak (default: random)")
)

// What the test has built.
var work, goroced string

func TestMain(m *testing.M) {
	if role := os.Getenv(roleEnv); role != "" {
		runChild(role)
		return
	}
	var err error
	if work, err = os.MkdirTemp("", "goroce-soak"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	_ = os.RemoveAll(work)
	os.Exit(code)
}

// soak is a run.
type soak struct {
	*testing.T
	rng      *rand.Rand
	net      *linktest.Cabled
	hosts    []*host // A, B
	programs []*program
	probes   map[*host]*program
	ledger   ledger
	watch    watch
	keepers  sync.WaitGroup
	pairs    sync.RWMutex // held while a pair runs
	over     chan struct{}
	wire     bool // the cable has a fault
	began    time.Time

	counts   map[string]int
	mu       sync.Mutex // of counts
	describe sync.Once
	strange  atomic.Pointer[string]
}

// say prints what happens.
func (s *soak) say(format string, args ...any) {
	s.Helper()
	s.Logf("%s "+format, append([]any{time.Now().Format("15:04:05.000")}, args...)...)
}

func (s *soak) count(what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.counts[what]++
}

// newSoak makes hosts and programs.
func newSoak(t *testing.T, seed uint64) *soak {
	require.Root(t)
	require.Command(t, "cc")
	goroced = filepath.Join(work, "goroced")
	if err := gobuild.Program(goroced, "../../cmd/goroced"); err != nil {
		t.Fatal(err)
	}
	libs, err := dropin.Build(context.Background(), work)
	if err != nil {
		t.Fatal(err)
	}
	s := &soak{T: t, rng: rand.New(rand.NewPCG(seed, 0)), over: make(chan struct{}), counts: map[string]int{},
		probes: map[*host]*program{},
		ledger: ledger{kinds: map[string]int{}, faults: map[string]int{}}, watch: watch{samples: map[*host][]sample{}}}
	s.net = linktest.NewCabled(t, 1500, 9000)
	s.hosts = []*host{newHost(t, "A", s.net.A, 1500, libs), newHost(t, "B", s.net.B, 9000, libs)}
	s.began = time.Now()
	s.ledger.was("clients came before their servers", loss, s.began, s.began)
	for i, h := range s.hosts {
		to := s.hosts[1-i].ns.Addr4.String()
		s.keep(h, "serve", job{})
		s.probes[h] = s.keep(h, "probe", job{Host: h.ns.Addr4.String(), Count: 1, Slot: slots - 1})
		for range 2 + s.rng.IntN(2) {
			s.keep(h, "stream", job{Host: to, Count: 1 + s.rng.IntN(3), Seed: s.rng.Uint64()})
		}
		s.keep(h, "memory", job{Host: to, Count: 2 + s.rng.IntN(4), Seed: s.rng.Uint64()})
		s.keep(h, "memory", job{Host: to, Count: 1 + s.rng.IntN(4), Seed: s.rng.Uint64(), Slot: 10})
	}
	for _, p := range pairs {
		s.keepPair(p)
	}
	s.keepers.Go(func() { s.watch.run(s.probes, s.over) })
	return s
}

// TestSoak: programs on two hosts go through faults, and whatever fails is explained by one. Afterwards nothing fails,
// and the daemons hold what they held before.
func TestSoak(t *testing.T) {
	seed := *soakSeed
	if seed == 0 {
		seed = rand.Uint64() >> 1
	}
	t.Logf("repeat it: go test ./tests/soak -run TestSoak -v -soak.time=%v -soak.seed=%d", *soakTime, seed)
	s := newSoak(t, seed)
	defer s.end()
	calm := min(*soakTime/6, time.Minute) // the first and the last
	between := min(calm, 20*time.Second)
	first := map[*host]holding{}
	s.settle(2 * time.Second)
	for round := 0; ; round++ {
		lasts := between
		last := round > 0 && time.Since(s.began)+2*between+calm+grace > *soakTime
		if round == 0 || last {
			lasts = calm
		}
		since := s.calm(lasts)
		for h, now := range s.measure(since) {
			s.say("%s holds %v", h.name, now)
			if first[h].daemon != now.daemon {
				first[h] = now
			} else {
				compare(t, h.name, first[h], now)
			}
		}
		if t.Failed() || last {
			return
		}
		s.trouble(round)
		s.settle(grace)
	}
}

// trouble plays faults: first the history, then what the seed chooses.
func (s *soak) trouble(round int) {
	longest := max(*soakTime/30, time.Second) // of a fault
	longest = min(longest, 6*time.Second)
	if round == 0 {
		for i := range history {
			f := &history[i]
			s.play(&f.fault, s.hosts[1], min(f.lasts, longest))()
		}
		return
	}
	severe := s.rng.IntN(3) > 0
	for range 2 + s.rng.IntN(4) {
		var ends []func()
		first := s.rng.IntN(2)
		for i, f := range s.choose(severe) {
			lasts := time.Second/2 + time.Duration(s.rng.Int64N(int64(longest)))
			ends = append(ends, s.play(f, s.hosts[(first+i)%2], lasts))
		}
		for _, end := range ends {
			end()
		}
	}
}

// settle lets retries end, and connections be made again. What has failed so far must be explained.
func (s *soak) settle(d time.Duration) {
	s.wait(d)
	for _, e := range s.ledger.settle() {
		s.Errorf("nothing explains: %v", e)
	}
}

// calm lets nothing happen for some time, in which nothing may fail and everybody makes progress.
func (s *soak) calm(d time.Duration) (since time.Time) {
	since = time.Now()
	before := map[*program]int64{}
	for _, p := range s.programs {
		before[p] = p.done.Load()
	}
	s.say("calm for %v", d.Round(time.Millisecond))
	s.wait(d)
	for _, e := range s.ledger.settle() {
		s.Errorf("in a calm phase: %v", e)
	}
	for _, p := range s.programs {
		if p.role != "serve" && p.done.Load() == before[p] {
			s.Errorf("in a calm phase of %v, %v makes no progress", d, p)
		}
	}
	for _, h := range s.hosts {
		h.judge(s)
	}
	return since
}

// wait lets time pass.
func (s *soak) wait(d time.Duration) { <-time.After(d) }

// end ends all programs, and the daemons.
func (s *soak) end() {
	close(s.over)
	s.keepers.Wait()
	if text := s.strange.Load(); text != nil && s.Failed() {
		path := filepath.Join(os.TempDir(), fmt.Sprintf("soak-%d.txt", os.Getpid()))
		if err := os.WriteFile(path, []byte(*text), 0o600); err == nil {
			s.Logf("what the hosts knew at the first failure that nothing explains: %s", path)
		}
	}
	for _, h := range s.hosts {
		h.stop(s)
	}
	var done int64
	for _, p := range s.programs {
		done += p.done.Load()
	}
	s.Logf("%d operations of %d programs; faults: %v; failures that they explain: %v; %v", done, len(s.programs),
		s.ledger.faults, s.ledger.kinds, s.counts)
}

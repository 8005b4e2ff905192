package soak

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// sample is what a daemon holds and has had at a time.
type sample struct {
	at     time.Time
	rss    int           // KiB of its own: without memory that it shares with clients
	waited time.Duration // its threads, and those of role probe, have waited for a processor, all together
}

// watch takes samples of daemons.
type watch struct {
	mu      sync.Mutex
	samples map[*host][]sample
}

// sampleEach is the time between two samples, and keepSamples how many of a host are kept.
const (
	sampleEach  = 500 * time.Millisecond
	keepSamples = 1200
)

var rssAnon = regexp.MustCompile(`RssAnon:\s+(\d+) kB`)

// take takes a sample; ok is false if the process has ended.
func (p *process) take() (s sample, ok bool) {
	s.at = time.Now()
	status, err := os.ReadFile(p.proc("status"))
	m := rssAnon.FindSubmatch(status)
	if err != nil || m == nil {
		return s, false
	}
	s.rss, _ = strconv.Atoi(string(m[1]))
	s.waited = p.waited()
	return s, true
}

// descriptors counts the open descriptors of the process.
func (p *process) descriptors() int {
	list, _ := os.ReadDir(p.proc("fd"))
	return len(list)
}

// waited returns how long the threads of the process have waited for a processor.
func (p *process) waited() (sum time.Duration) {
	files, _ := filepath.Glob(p.proc("task/*/schedstat"))
	for _, file := range files {
		text, _ := os.ReadFile(file)
		if f := strings.Fields(string(text)); len(f) == 3 {
			ns, _ := strconv.ParseInt(f[1], 10, 64)
			sum += time.Duration(ns)
		}
	}
	return sum
}

// run takes samples until stop is closed.
func (w *watch) run(probes map[*host]*program, stop <-chan struct{}) {
	for {
		select {
		case <-stop:
			return
		case <-time.After(sampleEach):
		}
		for h, probe := range probes {
			if s, ok := h.daemon().take(); ok {
				s.waited += probe.process().waited()
				w.mu.Lock()
				list := append(w.samples[h], s)
				w.samples[h] = list[max(0, len(list)-keepSamples):]
				w.mu.Unlock()
			}
		}
	}
}

// forget drops the samples of a host whose daemon is another one.
func (w *watch) forget(h *host) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.samples[h] = nil
}

// between returns the samples of a time, and the last one before it.
func (w *watch) between(h *host, from, to time.Time) (list []sample) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, s := range w.samples[h] {
		next := i+1 < len(w.samples[h]) && w.samples[h][i+1].at.Before(from)
		if !next && s.at.Before(to.Add(sampleEach)) {
			list = append(list, s)
		}
	}
	return list
}

// waited returns how long threads of a daemon and of its probe have waited for a processor since a time, or somewhat
// more.
func (w *watch) waited(h *host, probe *program, since time.Time) time.Duration {
	now := h.daemon().waited() + probe.process().waited()
	list := w.between(h, since, since)
	if len(list) == 0 {
		return 0
	}
	return now - list[0].waited
}

// holding is what a daemon holds in a calm phase.
type holding struct {
	daemon *process
	rss    int // KiB, the median
	fds    int
}

func (h holding) String() string { return fmt.Sprintf("%d KiB, %d descriptors", h.rss, h.fds) }

// rss returns the median of what a daemon has held since a time, in KiB.
func (w *watch) rss(h *host, since time.Time) int {
	list := w.between(h, since, time.Now())
	if len(list) == 0 {
		return 0
	}
	slices.SortFunc(list, func(a, b sample) int { return a.rss - b.rss })
	return list[len(list)/2].rss
}

// measure returns what daemons hold: memory since a time, and descriptors while no programs in C come and go.
func (s *soak) measure(since time.Time) map[*host]holding {
	s.pairs.Lock()
	defer s.pairs.Unlock()
	now := map[*host]holding{}
	for _, h := range s.hosts {
		least := h.daemon().descriptors()
		for range 10 { // what the daemon or this test has open for a moment does not count
			s.wait(50 * time.Millisecond)
			least = min(least, h.daemon().descriptors())
		}
		now[h] = holding{h.daemon(), s.watch.rss(h, since), least}
	}
	return now
}

// How much more a daemon may hold in a calm phase than in its first one: what tables and buffers keep, and descriptors
// that close later.
const (
	moreRSS = 24 << 10
	moreFDs = 4
)

// compare checks that a daemon holds what it held before.
func compare(t testing.TB, name string, first, now holding) {
	t.Helper()
	if now.rss > first.rss+moreRSS || now.fds > first.fds+moreFDs {
		t.Errorf("the daemon of %s holds %v, want at most %d and %d more than in its first calm phase, %v", name, now,
			moreRSS, moreFDs, first)
	}
}

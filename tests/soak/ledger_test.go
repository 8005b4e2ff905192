package soak

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/goroce/goroce/ib"
)

// entry is a failure that a program has reported.
type entry struct {
	at         time.Time
	who        string // host and program
	kind, text string
}

func (e entry) String() string {
	return fmt.Sprintf("%s %s: %s (%s)", e.at.Format("15:04:05.000"), e.who, e.kind, e.text)
}

// span is a time in which something explains failures.
type span struct {
	name     string
	from, to time.Time // to is zero while it lasts
	explains []string  // kinds
}

// What faults explain: those that lose packets, and those that end clients or daemons. An end whose peer has given up
// is told so, or is told nothing.
var (
	loss = []string{ib.WCRetryExcErr.String(), ib.WCWRFlushErr.String(), timedOut, unreachable, disconnected, rejected}
	// The memory of a process that is killed is freed before its queue pairs are closed.
	death = append([]string{gone, stood, ib.WCRemAccessErr.String(), ib.WCRemOpErr.String(), other}, loss...)
)

// still is what a daemon that does nothing, or whose own packets suffer, explains.
var still = append([]string{stood}, loss...)

// grace is how long failures may come after what explains them: retries, and connections that are being made.
const grace = 10 * time.Second

// ledger has what has failed, and what was done to hosts and their network.
type ledger struct {
	mu      sync.Mutex
	spans   []*span
	entries []entry
	kinds   map[string]int // failures that were explained
	faults  map[string]int // how often each was active
}

// begin notes that a fault is active, until the returned function is called.
func (l *ledger) begin(name string, explains []string) (end func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := &span{name: name, from: time.Now(), explains: explains}
	l.spans = append(l.spans, s)
	l.faults[name]++
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		s.to = time.Now()
	}
}

// was notes what explains failures of a time that is over.
func (l *ledger) was(name string, explains []string, from, to time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.spans = append(l.spans, &span{name, from, to, explains})
}

// add notes a failure, and reports whether nothing explains it so far.
func (l *ledger) add(e entry) (strange bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.entries = append(l.entries, e)
	return !l.explained(e)
}

func (l *ledger) explained(e entry) bool {
	return slices.ContainsFunc(l.spans, func(s *span) bool {
		return !e.at.Before(s.from) && (s.to.IsZero() || e.at.Before(s.to.Add(grace))) &&
			slices.Contains(s.explains, e.kind)
	})
}

// quiet reports whether nothing has been active since grace before a time.
func (l *ledger) quiet(since time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !slices.ContainsFunc(l.spans, func(s *span) bool {
		return s.explains != nil && (s.to.IsZero() || since.Before(s.to.Add(grace)))
	})
}

// settle removes all entries, and returns those that nothing explains.
func (l *ledger) settle() (strange []entry) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range l.entries {
		if l.explained(e) {
			l.kinds[e.kind]++
		} else {
			strange = append(strange, e)
		}
	}
	l.entries = nil
	l.spans = slices.DeleteFunc(l.spans, func(s *span) bool {
		return !s.to.IsZero() && time.Since(s.to) > 2*time.Minute
	})
	return strange
}

// recent lists what was active in the last two minutes.
func (l *ledger) recent() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var b strings.Builder
	for _, s := range l.spans {
		to := "now"
		if !s.to.IsZero() {
			to = s.to.Format("15:04:05.000")
		}
		fmt.Fprintf(&b, "%s to %s: %s\n", s.from.Format("15:04:05.000"), to, s.name)
	}
	return b.String()
}

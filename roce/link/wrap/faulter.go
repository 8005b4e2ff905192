package wrap

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/link"
)

// Faulter is a Link with faults; see [Fault], [Corrupt] and [Network].
type Faulter struct {
	link.Link
	rules      *Rules
	send, recv injector
	in         []link.Run // what the Link below received
	now        ib.Instant // of the latest Recv with faults
	counts     map[Action]*atomic.Uint64
	most       int    // how many frames of one direction may be held
	beyond     Action // what happens to a frame that would have to wait while most frames are held
	closed     sync.Once

	onDrop        func(now ib.Instant, r *link.Run, frame []byte) // see FaultConfig
	onBadChecksum func(now ib.Instant, r *link.Run)
}

// newFaulter returns a Link on which the rules of s, which is one of t, apply.
func newFaulter(l link.Link, t *Rules, s *stage) *Faulter {
	t.mu.Lock()
	t.open++
	t.mu.Unlock()
	f := &Faulter{Link: l, rules: t, counts: make(map[Action]*atomic.Uint64), most: maxHeld, beyond: actPass}
	for _, a := range []Action{actPass, ActDrop, ActDuplicate, ActReorder, ActDelay, actBadChecksum, ActMark,
		ActCorrupt, ActTruncate} {
		f.counts[a] = new(atomic.Uint64)
	}
	f.send = injector{f: f, direction: outgoing, rules: &s[outgoing], numbered: l.Caps().ID == link.IDFree}
	f.recv = injector{f: f, direction: incoming, rules: &s[incoming]}
	return f
}

// Counts returns the counters. Any goroutine may call it.
func (f *Faulter) Counts() FaultCounts {
	n := func(a Action) uint64 { return f.counts[a].Load() }
	return FaultCounts{
		Passed: n(actPass) + n(ActDuplicate), Dropped: n(ActDrop), Duplicated: n(ActDuplicate),
		Reordered: n(ActReorder), Delayed: n(ActDelay), BadChecksums: n(actBadChecksum), Marked: n(ActMark),
		Corrupted: n(ActCorrupt), Truncated: n(ActTruncate),
	}
}

// Send takes all runs. It takes none while frames wait that the Link below could not take earlier.
func (f *Faulter) Send(now ib.Instant, out []link.Run) (int, error) {
	if f.send.off() {
		return f.Link.Send(now, out)
	}
	if err := f.release(now); err != nil || len(f.send.out) > 0 {
		return 0, err
	}
	for i := range out {
		f.send.pass(now, &out[i])
	}
	if err := f.flush(now); err != nil {
		return 0, err
	}
	return len(out), nil
}

// release sends the held frames that are due.
func (f *Faulter) release(now ib.Instant) error {
	f.send.release(now)
	if len(f.send.out) == 0 {
		return nil
	}
	return f.flush(now)
}

// flush sends the output of the send side. It copies what the Link below does not take, because the caller reuses its
// buffers.
func (f *Faulter) flush(now ib.Instant) error {
	n, err := f.Link.Send(now, f.send.out)
	f.send.keep(n)
	return err
}

// Recv also sends delayed frames that are due.
func (f *Faulter) Recv(now ib.Instant, in []link.Run) (int, error) {
	if !f.send.idle() {
		if err := f.release(now); err != nil {
			return 0, err
		}
	}
	if f.recv.off() {
		return f.Link.Recv(now, in)
	}
	f.now = now
	if len(f.recv.out) == 0 {
		if err := f.receive(now, len(in)); err != nil {
			return 0, err
		}
	}
	n := copy(in, f.recv.out)
	f.recv.out = slices.Delete(f.recv.out, 0, n)
	return n, nil
}

// receive receives from the Link below. It invalidates everything that it has returned earlier.
func (f *Faulter) receive(now ib.Instant, most int) error {
	f.recv.keep(0)
	if len(f.in) < most {
		f.in = make([]link.Run, most)
	}
	n, err := f.Link.Recv(now, f.in[:most])
	f.recv.release(now)
	for i := range f.in[:n] {
		f.recv.pass(now, &f.in[i])
	}
	return err
}

// Keep gives away received runs, those that Recv will return later as well.
func (f *Faulter) Keep() {
	f.recv.lent = nil // never used again
	f.Link.Keep()
}

// Deadline returns when the next held frame is due.
func (f *Faulter) Deadline() ib.Instant {
	if len(f.recv.out) > 0 {
		return f.now
	}
	return min(f.Link.Deadline(), f.send.due(), f.recv.due())
}

// Wait returns at once if received frames are left.
func (f *Faulter) Wait(d time.Duration, writable bool) error {
	if len(f.recv.out) > 0 {
		d = 0
	}
	return f.Link.Wait(d, writable || len(f.send.out) > 0)
}

// Close also ends the rules, if this was the last of their Links.
func (f *Faulter) Close() error {
	f.closed.Do(f.rules.linkClosed)
	return f.Link.Close()
}

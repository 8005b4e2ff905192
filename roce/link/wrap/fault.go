package wrap

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/link"
)

// DefaultMaxDelay is FaultConfig.MaxDelay if that is 0.
const DefaultMaxDelay = time.Millisecond

// FaultConfig configures the faults of a bad network. A frame suffers at most one fault, so the probabilities may add
// up to 1.
type FaultConfig struct {
	// Seed makes runs repeatable: the same frames in the same order suffer the same faults.
	Seed uint64

	// Probabilities, for each frame:
	Drop      float64 // it is lost
	Duplicate float64 // it arrives twice, at once
	Reorder   float64 // it arrives after the next frame between the same hosts, or after MaxDelay
	Delay     float64 // it arrives later by a random time up to MaxDelay

	MaxDelay time.Duration

	// OnSend and OnRecv say which frames suffer faults; if neither is set, those that are sent.
	OnSend, OnRecv bool

	// OnDrop is called for each frame that is dropped, so that a trace can show it. r is the run of the frame. Both are
	// valid during the call only.
	OnDrop func(now ib.Instant, r *link.Run, frame []byte)
}

// FaultCounts counts frames by what happened to them.
type FaultCounts struct{ Passed, Dropped, Duplicated, Reordered, Delayed uint64 }

// Faulter is a Link with faults; see [Fault].
type Faulter struct {
	link.Link
	onSend, onRecv bool
	send, recv     injector
	in             []link.Run // what the Link below has received
	now            ib.Instant // the latest time
}

// Fault returns a Link with the faults of a bad network. It belongs above Seal, because it splits runs at the frames
// that suffer a fault; the frames between these stay together.
func Fault(l link.Link, c FaultConfig) *Faulter {
	if c.MaxDelay <= 0 {
		c.MaxDelay = DefaultMaxDelay
	}
	f := &Faulter{Link: l, onSend: c.OnSend || !c.OnRecv, onRecv: c.OnRecv}
	// Separate random streams, so that received frames have no influence on what happens to sent ones.
	f.send.init(c, 0)
	f.recv.init(c, 1)
	return f
}

// Counts returns the counters. Any goroutine may call it.
func (f *Faulter) Counts() FaultCounts {
	a, b := f.send.counts(), f.recv.counts()
	return FaultCounts{a.Passed + b.Passed, a.Dropped + b.Dropped, a.Duplicated + b.Duplicated,
		a.Reordered + b.Reordered, a.Delayed + b.Delayed}
}

// Send takes all runs. It takes none while frames wait that the Link below could not take earlier.
func (f *Faulter) Send(now ib.Instant, out []link.Run) (int, error) {
	f.now = now
	if !f.onSend {
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
	f.now = now
	if err := f.release(now); err != nil {
		return 0, err
	}
	if !f.onRecv {
		return f.Link.Recv(now, in)
	}
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

// tally is a FaultCounts with atomic counters.
type tally struct{ passed, dropped, duplicated, reordered, delayed atomic.Uint64 }

func (t *tally) counts() FaultCounts {
	return FaultCounts{t.passed.Load(), t.dropped.Load(), t.duplicated.Load(), t.reordered.Load(), t.delayed.Load()}
}

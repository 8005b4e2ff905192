package wrap

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/link"
)

// Defaults of FaultConfig.
const (
	DefaultMaxDelay = time.Millisecond
	DefaultBuffer   = time.Millisecond
)

// FaultConfig says how bad a network is: what happens to frames by chance, and what the
// path that all of them take is like. A frame suffers one of the faults at most, so the
// probabilities may add up to 1.
type FaultConfig struct {
	// Seed determines everything: the same frames in the same order, at the same times,
	// suffer the same faults.
	Seed uint64

	// Probabilities, for each frame:
	Drop        float64 // it is lost
	Duplicate   float64 // it arrives twice, at once
	Reorder     float64 // it arrives after the next frame between the same hosts, or after MaxDelay
	Delay       float64 // it arrives later by a random time up to MaxDelay
	Late        float64 // it arrives later by LateBy
	BadChecksum float64 // its UDP checksum is wrong; see OnBadChecksum
	MarkCE      float64 // Congestion Experienced (RFC 3168), whether or not its sender knows ECN
	Corrupt     float64 // one bit that the ICRC covers is flipped; not by Fault
	Truncate    float64 // its end is missing, at least 4 bytes of it; not by Fault

	MaxDelay time.Duration // DefaultMaxDelay if 0
	LateBy   time.Duration

	// Burst is loss of frames that follow each other, besides Drop.
	Burst Burst

	// The path, the same for every frame:
	Latency   time.Duration // it arrives that much later
	Jitter    time.Duration // and later by a random time up to this: frames overtake each other
	Rate      int64         // bits of IP packets that it carries in a second; 0 is no limit
	Buffer    time.Duration // frames that would have to wait longer for their turn, with Rate, are lost
	BlackHole int           // IP packets of more bytes vanish, and nobody is told; 0 for none

	// OnSend and OnRecv say which frames suffer faults; if neither is set, those that are sent.
	OnSend, OnRecv bool

	// OnDrop is called for each frame that is dropped, so that a trace can show it. r is the run of the frame. Both are
	// valid during the call only.
	OnDrop func(now ib.Instant, r *link.Run, frame []byte)

	// OnBadChecksum, if it is set, takes each frame on whose UDP checksum is to be wrong. r
	// holds it alone, and is valid during the call only. Without it the frame is lost, as it
	// is for most receivers: the kernel drops it before link udp or rdma_rxe, and link rawsock
	// does so itself. Only link afxdp would take it, since the ICRC says more.
	OnBadChecksum func(now ib.Instant, r *link.Run)
}

// Burst is the Gilbert-Elliott model of loss in bursts: 1/End frames long on average,
// with 1/Begin frames between them.
type Burst struct {
	Begin float64 // probability that a burst begins with a frame
	End   float64 // probability that a burst ends before its next frame
	Loss  float64 // probability of each frame of a burst to be lost; 0 stands for 1
}

// Perfect reports whether c has no fault.
func (c *FaultConfig) Perfect() bool {
	for _, p := range c.chances() {
		if p.p > 0 {
			return false
		}
	}
	return c.Burst.Begin == 0 && !c.hasPath()
}

// chance is the probability of a fault.
type chance struct {
	p float64
	fault
}

// chances are the faults that exclude each other. The order is part of what a seed means.
func (c *FaultConfig) chances() []chance {
	return []chance{{c.Drop, drop}, {c.Duplicate, duplicate}, {c.Reorder, reorder}, {c.Delay, delay}, {c.Late, late},
		{c.BadChecksum, badChecksum}, {c.MarkCE, markCE}, {c.Corrupt, corrupted}, {c.Truncate, truncate}}
}

func (c *FaultConfig) hasPath() bool {
	return c.Latency > 0 || c.Jitter > 0 || c.Rate > 0 || c.BlackHole > 0
}

// FaultCounts counts frames by what happened to them. Passed are those that suffered no fault
// by chance; if they were sent, the path may still drop them, and they are in Dropped as well.
type FaultCounts struct {
	Passed, Dropped, Duplicated, Reordered, Delayed uint64
	BadChecksums, Marked, Corrupted, Truncated      uint64
}

// Faulter is a Link with faults; see [Fault] and [Network].
type Faulter struct {
	link.Link
	onSend, onRecv bool
	send, recv     injector
	in             []link.Run // what the Link below received
	now            ib.Instant // latest
	path           *Faulter   // the Link below if that is the path of the same network; or nil
}

// Fault returns a Link that does to frames what a bad network does, except Corrupt and
// Truncate. It belongs above Seal, because it splits runs around the frames that suffer a
// fault, and a frame that was damaged above Seal would get a correct ICRC. The frames between
// them stay in one run, unless c has a path.
func Fault(l link.Link, c FaultConfig) *Faulter {
	c.Corrupt, c.Truncate = 0, 0
	return Network(l, c)
}

// Network is Fault with Corrupt and Truncate. It belongs below Seal. l must not number
// the frames of a run by their place (link.IDIndex), unless its faults are OnRecv.
func Network(l link.Link, c FaultConfig) *Faulter {
	if c.MaxDelay <= 0 {
		c.MaxDelay = DefaultMaxDelay
	}
	if c.Buffer <= 0 {
		c.Buffer = DefaultBuffer
	}
	if !c.hasPath() {
		return newFaulter(l, c)
	}
	path := newFaulter(l, c)
	path.send.takePath(2)
	path.recv.takePath(3)
	f := newFaulter(path, c)
	f.path = path
	return f
}

func newFaulter(l link.Link, c FaultConfig) *Faulter {
	f := &Faulter{Link: l, onSend: c.OnSend || !c.OnRecv, onRecv: c.OnRecv}
	// Separate random streams, so that received frames have no influence on what happens to sent ones.
	f.send.init(c, 0)
	f.recv.init(c, 1)
	f.send.numbered = l.Caps().ID == link.IDFree
	return f
}

// Counts returns the counters. Any goroutine may call it.
func (f *Faulter) Counts() FaultCounts {
	var c FaultCounts
	f.send.addTo(&c)
	f.recv.addTo(&c)
	if f.path != nil {
		c.Dropped += f.path.send.dropped.Load() + f.path.recv.dropped.Load()
	}
	return c
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

// tally is FaultCounts for the goroutine that counts and those that read.
type tally struct {
	passed, dropped, duplicated, reordered, delayed  atomic.Uint64
	badChecksums, marked, corruptedFrames, truncated atomic.Uint64
}

func (t *tally) addTo(c *FaultCounts) {
	c.Passed += t.passed.Load()
	c.Dropped += t.dropped.Load()
	c.Duplicated += t.duplicated.Load()
	c.Reordered += t.reordered.Load()
	c.Delayed += t.delayed.Load()
	c.BadChecksums += t.badChecksums.Load()
	c.Marked += t.marked.Load()
	c.Corrupted += t.corruptedFrames.Load()
	c.Truncated += t.truncated.Load()
}

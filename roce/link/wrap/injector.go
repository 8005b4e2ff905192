package wrap

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/link"
)

// maxHeld limits the frames that wait in one injector. At the limit, no more are delayed or reordered.
const maxHeld = 4096

// fault is what happens to a frame.
type fault uint8

const (
	intact fault = iota
	drop
	duplicate
	reorder
	delay
)

// injector applies faults to the frames that are sent, or to those that are received.
type injector struct {
	cfg FaultConfig
	rng *rand.Rand
	tally

	// decide returns the fault of frame i of r, and for delay its duration.
	decide func(r *link.Run, i int) (fault, time.Duration)

	out  []link.Run // runs to pass on, in order
	lent [][]byte   // buffers of the injector that out refers to
	free [][]byte   // buffers of the injector that are not in use

	held   []heldFrame // by due time, then by arrival
	behind int         // number of held frames that wait for another frame
}

// heldFrame is a frame that waits.
type heldFrame struct {
	run    link.Run // in a buffer of the injector
	due    ib.Instant
	behind bool // waits for the next frame between the same hosts, until due at the latest
}

func (l *injector) init(c FaultConfig, stream uint64) {
	l.cfg = c
	l.rng = rand.New(rand.NewPCG(c.Seed, stream))
	l.decide = l.roll
}

// roll chooses the fault of a frame at random. It takes one random number, and a second one for a delay.
func (l *injector) roll(*link.Run, int) (fault, time.Duration) {
	u := l.rng.Float64()
	for _, c := range [...]struct {
		p float64
		fault
	}{{l.cfg.Drop, drop}, {l.cfg.Duplicate, duplicate}, {l.cfg.Reorder, reorder}, {l.cfg.Delay, delay}} {
		switch {
		case u >= c.p:
			u -= c.p
		case c.fault == delay:
			return delay, 1 + time.Duration(l.rng.Int64N(int64(l.cfg.MaxDelay)))
		default:
			return c.fault, 0
		}
	}
	return intact, 0
}

// pass decides about each frame of r and appends to out what is passed on now.
func (l *injector) pass(now ib.Instant, r *link.Run) {
	first := 0 // first of the frames that stay together
	n := r.Frames()
	for i := range n {
		f, wait := l.decide(r, i)
		if f >= reorder && len(l.held) >= maxHeld {
			f = intact
		}
		overtakes := l.behind > 0 && (f == intact || f == duplicate)
		if f == intact && !overtakes {
			continue
		}
		if f == intact || f == duplicate {
			l.passOn(r, first, i+1)
		} else {
			l.passOn(r, first, i)
		}
		first = i + 1
		l.apply(now, f, wait, r, i)
		if overtakes {
			l.releaseBehind(r)
		}
	}
	l.passOn(r, first, n)
}

// apply applies the fault f to frame i of r. The frames before it are in out already, and so is the frame itself if it
// is passed on.
func (l *injector) apply(now ib.Instant, f fault, wait time.Duration, r *link.Run, i int) {
	switch f {
	case drop:
		l.dropped.Add(1)
		if l.cfg.OnDrop != nil {
			l.cfg.OnDrop(now, r, r.Frame(i))
		}
	case duplicate:
		l.duplicated.Add(1)
		// The copy needs a buffer of its own: Seal writes a different ICRC if the identification differs.
		l.emit(&heldFrame{run: l.own(part(r, i, i+1))})
	case reorder:
		l.reordered.Add(1)
		l.behind++
		l.hold(part(r, i, i+1), now+ib.Instant(l.cfg.MaxDelay), true)
	case delay:
		l.delayed.Add(1)
		l.hold(part(r, i, i+1), now+ib.Instant(wait), false)
	}
}

// part returns the frames [from, to) of r as a run.
func part(r *link.Run, from, to int) link.Run {
	p := *r
	p.Buf = r.Buf[from*r.Size : min(to*r.Size, len(r.Buf))]
	if from > 0 {
		// The identification of a later frame need not follow that of the first, as in a run that the receiver has
		// merged; the receiver solves it from the ICRC.
		p.ID, p.KnownID = 0, false
	}
	return p
}

func (l *injector) passOn(r *link.Run, from, to int) {
	if from < to {
		l.passed.Add(uint64(to - from))
		l.out = append(l.out, part(r, from, to))
	}
}

// hold keeps a copy of a frame until due.
func (l *injector) hold(r link.Run, due ib.Instant, behind bool) {
	r = l.own(r)
	at, _ := slices.BinarySearchFunc(l.held, due+1, func(h heldFrame,
		t ib.Instant) int {
		return cmp.Compare(h.due, t)
	})
	l.held = slices.Insert(l.held, at, heldFrame{r, due, behind})
}

// releaseBehind passes on the frames that wait for a frame between the hosts of r.
func (l *injector) releaseBehind(r *link.Run) {
	l.held = slices.DeleteFunc(l.held, func(h heldFrame) bool {
		if !h.behind || h.run.Src != r.Src || h.run.Dst != r.Dst {
			return false
		}
		l.emit(&h)
		return true
	})
}

// release passes on the frames that are due.
func (l *injector) release(now ib.Instant) {
	n := 0
	for ; n < len(l.held) && l.held[n].due <= now; n++ {
		l.emit(&l.held[n])
	}
	l.held = slices.Delete(l.held, 0, n)
}

func (l *injector) emit(h *heldFrame) {
	if h.behind {
		l.behind--
	}
	l.out = append(l.out, h.run)
	l.lent = append(l.lent, h.run.Buf)
}

// due returns when the next held frame is due.
func (l *injector) due() ib.Instant {
	if len(l.held) == 0 {
		return ib.Never
	}
	return l.held[0].due
}

// own returns r with a copy of its frames in a buffer of the injector.
func (l *injector) own(r link.Run) link.Run {
	r.Buf = append(l.buffer(), r.Buf...)
	return r
}

// buffer returns an empty buffer of the injector.
func (l *injector) buffer() []byte {
	if n := len(l.free); n > 0 {
		b := l.free[n-1]
		l.free = l.free[:n-1]
		return b[:0]
	}
	return nil
}

// keep removes the first n runs of out, which have been passed on. It copies the rest into buffers of the injector,
// because the caller will reuse the original ones.
func (l *injector) keep(n int) {
	old := len(l.lent)
	for i := range l.out[n:] {
		r := &l.out[n+i]
		r.Buf = append(l.buffer(), r.Buf...)
		l.lent = append(l.lent, r.Buf)
	}
	l.free = append(l.free, l.lent[:old]...)
	l.lent = slices.Delete(l.lent, 0, old)
	l.out = slices.Delete(l.out, 0, n)
}

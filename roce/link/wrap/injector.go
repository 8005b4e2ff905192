package wrap

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/link"
	"github.com/goroce/goroce/roce/link/internal/runs"
)

// maxHeld bounds the frames that wait in one injector. While so many wait, none
// is delayed or reordered.
const maxHeld = 4096

// maxOnPath bounds the frames that are on their way in one injector; those beyond are lost.
const maxOnPath = 1 << 14

// fault is what happens to a frame.
type fault uint8

const (
	intact fault = iota
	drop
	badChecksum // the frame is lost, or passed to FaultConfig.OnBadChecksum
	duplicate   // from here on the frame goes on now
	markCE
	corrupted
	truncate
	reorder // from here on it waits
	delay
	late // a delay of FaultConfig.LateBy
)

// waits reports whether the frame goes on later.
func (f fault) waits() bool { return f >= reorder }

// goesOn reports whether the frame goes on now.
func (f fault) goesOn() bool { return f == intact || f >= duplicate && f < reorder }

// injector applies faults to the frames of one direction.
type injector struct {
	cfg FaultConfig
	rng *rand.Rand
	tally

	// decide decides over frame i of r; with delay, for how long.
	decide func(now ib.Instant, r *link.Run, i int) (fault, time.Duration)

	chances  []chance
	inBurst  bool
	clear    ib.Instant // when the path can take the next frame
	most     int        // how many frames may be held
	beyond   fault      // the fault of a frame that would have to wait while most frames are held
	numbered bool       // the frames of a run have identifications that count on from the first's

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
	l.chances = c.chances()
	l.most, l.beyond = maxHeld, intact
}

// roll decides over one frame by chance. It takes one random number, another for a
// delay, and, where there are bursts, up to two before.
func (l *injector) roll(ib.Instant, *link.Run, int) (fault, time.Duration) {
	if l.burst() {
		return drop, 0
	}
	u := l.rng.Float64()
	for _, c := range l.chances {
		switch {
		case u >= c.p:
			u -= c.p
		case c.fault == delay:
			return delay, 1 + time.Duration(l.rng.Int64N(int64(l.cfg.MaxDelay)))
		case c.fault == late:
			return delay, l.cfg.LateBy
		default:
			return c.fault, 0
		}
	}
	return intact, 0
}

// burst reports whether a burst takes the next frame.
func (l *injector) burst() bool {
	b := &l.cfg.Burst
	if b.Begin <= 0 {
		return false
	}
	turn := b.Begin
	if l.inBurst {
		turn = b.End
	}
	if l.rng.Float64() < turn {
		l.inBurst = !l.inBurst
	}
	return l.inBurst && (b.Loss == 0 || l.rng.Float64() < b.Loss)
}

// pass decides over each frame of r and appends to out what goes on now.
func (l *injector) pass(now ib.Instant, r *link.Run) {
	first := 0 // of the frames that stay together
	n := r.Frames()
	for i := range n {
		f, wait := l.decide(now, r, i)
		if f.waits() && len(l.held) >= l.most {
			f = l.beyond
		}
		overtakes := l.behind > 0 && f.goesOn()
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

// apply does to frame i of r what is left to do once the frames before it, and
// itself if it goes on unchanged, are in out.
func (l *injector) apply(now ib.Instant, f fault, wait time.Duration, r *link.Run, i int) {
	switch f {
	case drop:
		l.dropped.Add(1)
		if l.cfg.OnDrop != nil {
			l.cfg.OnDrop(now, r, r.Frame(i))
		}
	case badChecksum:
		l.badChecksums.Add(1)
		if l.cfg.OnBadChecksum != nil {
			alone := l.part(r, i, i+1)
			l.cfg.OnBadChecksum(now, &alone)
		}
	case duplicate:
		l.duplicated.Add(1)
		// A buffer of its own: Seal writes another ICRC where the identification differs.
		l.emit(&heldFrame{run: l.own(l.part(r, i, i+1))})
	case markCE, corrupted, truncate:
		l.emit(&heldFrame{run: l.alter(f, l.own(l.part(r, i, i+1)))})
	case reorder:
		l.reordered.Add(1)
		l.behind++
		l.hold(l.part(r, i, i+1), now+ib.Instant(l.cfg.MaxDelay), true)
	case delay:
		l.delayed.Add(1)
		l.hold(l.part(r, i, i+1), now+ib.Instant(wait), false)
	}
}

// alter changes a frame, which is the injector's own.
func (l *injector) alter(f fault, r link.Run) link.Run {
	switch f {
	case markCE:
		l.marked.Add(1)
		r.TrafficClass |= 3 // RFC 3168, 5
	case corrupted:
		l.corruptedFrames.Add(1)
		if len(r.Buf) > bthMasked {
			flip(r.Buf, l.rng.Uint64())
		}
	case truncate:
		l.truncated.Add(1)
		if words := (len(r.Buf) - runs.MinFrame) / 4; words > 0 {
			r.Buf = r.Buf[:runs.MinFrame+4*l.rng.IntN(words)]
			r.Size = len(r.Buf)
		}
	}
	return r
}

// part returns frames [from, to) of r as a run.
func (l *injector) part(r *link.Run, from, to int) link.Run {
	p := *r
	p.Buf = r.Buf[from*r.Size : min(to*r.Size, len(r.Buf))]
	switch {
	case from == 0:
	case l.numbered:
		p.ID += uint16(from)
	default:
		// Whether the identification of later frames counts on from the first is
		// for the receiver to find out (a merged run may have it or not).
		p.ID, p.KnownID = 0, false
	}
	return p
}

func (l *injector) passOn(r *link.Run, from, to int) {
	if from < to {
		l.passed.Add(uint64(to - from))
		l.out = append(l.out, l.part(r, from, to))
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

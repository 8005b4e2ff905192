package wrap

import (
	"cmp"
	"slices"
	"sync/atomic"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/ib/driver"
	"github.com/goroce/goroce/roce/link"
	"github.com/goroce/goroce/roce/link/internal/runs"
	"github.com/goroce/goroce/wire"
)

// maxHeld bounds the frames that wait in one injector. While so many wait, none
// is delayed or reordered.
const maxHeld = 4096

// maxOnPath bounds the frames that are on their way in one injector; those beyond are lost.
const maxOnPath = 1 << 14

// injector does to the frames of one direction what rules say.
type injector struct {
	f         *Faulter
	direction int
	rules     *atomic.Pointer[[]*rule] // nil for none
	numbered  bool                     // the frames of a run have identifications that count on from the first's

	run  link.Run   // the one that pass is at
	out  []link.Run // runs to pass on, in order
	lent [][]byte   // buffers of the injector that out refers to
	free [][]byte   // buffers of the injector that are not in use

	held   []heldFrame // by due time, then by arrival; in array
	array  []heldFrame
	behind int // number of held frames that wait for another frame
}

// heldFrame is a frame that waits.
type heldFrame struct {
	run    link.Run // in a buffer of the injector
	due    ib.Instant
	behind bool // waits for the next frame between the same hosts, until due at the latest
}

// idle reports whether no frame waits.
func (l *injector) idle() bool { return len(l.out) == 0 && len(l.held) == 0 }

// off reports whether frames pass as they are.
func (l *injector) off() bool { return l.rules.Load() == nil && l.idle() }

// decide returns what happens to frame i of r: the effect of the first rule that affects it.
func (l *injector) decide(now ib.Instant, r *link.Run, i int) effect {
	list := l.rules.Load()
	if list == nil {
		return effect{}
	}
	frame := r.Frame(i)
	for _, rule := range *list {
		if rule.spent() || !rule.holds(l.direction, r, frame) {
			continue
		}
		random, ok := rule.draw()
		if !ok {
			continue
		}
		if rule.spent() {
			l.f.rules.republish()
		}
		e := rule.effect(now, l.direction, r, frame, random)
		if e.waits() && len(l.held) >= l.f.most {
			if rule.queues != nil {
				return effect{Action: ActDrop}
			}
			return effect{Action: l.f.beyond}
		}
		return e
	}
	return effect{}
}

// pass decides over each frame of run and appends to out what goes on now.
func (l *injector) pass(now ib.Instant, run *link.Run) {
	l.run = *run
	r := &l.run
	first := 0 // of the frames that stay together
	passed, copied := uint64(0), false
	n := r.Frames()
	for i := range n {
		e := l.decide(now, r, i)
		if e.Action == actPass {
			passed++
		} else {
			l.f.counts[e.Action].Add(1)
		}
		if e.Action == ActCorrupt {
			if !copied { // a sender may send its run again, and one that was received may have other readers
				*r, copied = l.own(*r), true
				l.lent = append(l.lent, r.Buf)
			}
			flip(r.Frame(i), e.random)
			e.Action = actPass
		}
		overtakes := l.behind > 0 && e.goesOn()
		if e.Action == actPass && !overtakes {
			continue
		}
		end := i
		if e.Action == actPass || e.Action == ActDuplicate {
			end++
		}
		l.passOn(r, first, end)
		first = i + 1
		l.apply(now, e, r, i)
		if overtakes {
			l.releaseBehind(r)
		}
	}
	l.passOn(r, first, n)
	l.f.counts[actPass].Add(passed)
}

// apply does to frame i of r what is left to do once the frames before it, and
// itself if it goes on unchanged, are in out.
func (l *injector) apply(now ib.Instant, e effect, r *link.Run, i int) {
	alone := l.part(r, i, i+1)
	switch e.Action {
	case ActDrop:
		if l.f.onDrop != nil {
			l.f.onDrop(now, r, alone.Buf)
		}
	case actBadChecksum:
		if l.f.onBadChecksum != nil {
			bad := alone // the pointer makes it escape to the heap, which alone must not
			l.f.onBadChecksum(now, &bad)
		}
	case ActDuplicate:
		l.emit(l.own(alone)) // a buffer of its own: Seal writes another ICRC where the identification differs
	case ActMark:
		alone.TrafficClass |= uint8(wire.CE)
		l.emit(l.own(alone))
	case ActTruncate:
		if words := (len(alone.Buf) - runs.MinFrame) / 4; words > 0 {
			alone.Size = runs.MinFrame + 4*int(e.random%uint64(words))
			alone.Buf = alone.Buf[:alone.Size]
		}
		l.emit(l.own(alone))
	case ActDelay, ActReorder:
		l.hold(heldFrame{l.own(alone), now + ib.Instant(e.wait), e.Action == ActReorder})
	}
}

// flip flips one of the bits that the ICRC covers; random chooses it.
func flip(frame []byte, random uint64) {
	const masked = 4 // the byte of FECN, BECN and reserved bits, in which no receiver could detect a change
	bit := int(random % uint64((len(frame)-1)*8))
	if bit >= masked*8 {
		bit += 8
	}
	frame[bit/8] ^= 1 << (bit % 8)
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
		l.out = append(l.out, l.part(r, from, to))
	}
}

// hold keeps a frame until it is due.
func (l *injector) hold(h heldFrame) {
	if h.behind {
		l.behind++
	}
	if len(l.held) == cap(l.held) { // go back to the start of array, or of a larger one
		l.array = slices.Grow(l.array[:0], 2*len(l.held)+1)
		l.held = append(l.array, l.held...)
	}
	at, _ := slices.BinarySearchFunc(l.held, h.due+1, func(h heldFrame, t ib.Instant) int {
		return cmp.Compare(h.due, t)
	})
	l.held = slices.Insert(l.held, at, h)
}

// releaseBehind passes on the frames that wait for a frame between the hosts of r.
func (l *injector) releaseBehind(r *link.Run) {
	l.held = slices.DeleteFunc(l.held, func(h heldFrame) bool {
		goes := h.behind && h.run.Src == r.Src && h.run.Dst == r.Dst
		if goes {
			l.letGo(h)
		}
		return goes
	})
}

// release passes on the frames that are due.
func (l *injector) release(now ib.Instant) {
	for l.due() <= now {
		l.letGo(l.held[0])
		l.held = l.held[1:]
	}
}

// letGo passes on a frame that was held.
func (l *injector) letGo(h heldFrame) {
	if h.behind {
		l.behind--
	}
	l.emit(h.run)
}

// emit passes on a run in a buffer of the injector.
func (l *injector) emit(r link.Run) {
	l.out = append(l.out, r)
	l.lent = append(l.lent, r.Buf)
}

// due returns when the next held frame is due.
func (l *injector) due() ib.Instant {
	if len(l.held) == 0 {
		return driver.Never
	}
	return l.held[0].due
}

// own returns r with a copy of its frames in a buffer of the injector.
func (l *injector) own(r link.Run) link.Run {
	var b []byte
	if n := len(l.free); n > 0 {
		b = l.free[n-1][:0]
		l.free = l.free[:n-1]
	}
	r.Buf = append(b, r.Buf...)
	return r
}

// keep removes the first n runs of out, which have been passed on. It copies the rest into buffers of the injector,
// because the caller will reuse the original ones.
func (l *injector) keep(n int) {
	old := len(l.lent)
	for i := n; i < len(l.out); i++ {
		l.out[i] = l.own(l.out[i])
		l.lent = append(l.lent, l.out[i].Buf)
	}
	l.free = append(l.free, l.lent[:old]...)
	l.lent = slices.Delete(l.lent, 0, old)
	l.out = slices.Delete(l.out, 0, n)
}

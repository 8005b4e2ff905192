package wrap

import (
	"sync"
	"time"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/link"
)

// faults are the faults of the actions.
var faults = map[Action]fault{ActDrop: drop, ActDuplicate: duplicate, ActDelay: delay, ActCorrupt: corrupted}

// Above returns a Link on which frames are dropped, delayed and duplicated. It belongs
// above Seal, as Fault does; the Link of t.Below belongs below Seal. While maxHeld frames
// wait, further ones are not delayed.
func (t *Rules) Above(l link.Link) link.Link {
	t.opened()
	r := &ruled{Faulter: Fault(l, FaultConfig{OnSend: true, OnRecv: true}), rules: t}
	r.send.decide = func(_ ib.Instant, run *link.Run, i int) (fault, time.Duration) { return t.decide(true, run, i) }
	r.recv.decide = func(_ ib.Instant, run *link.Run, i int) (fault, time.Duration) { return t.decide(false, run, i) }
	return r
}

// Below returns a Link on which frames are corrupted: after they were sealed, or before the device checks them.
func (t *Rules) Below(l link.Link) link.Link {
	t.opened()
	return &ruleCorrupter{Link: l, rules: t}
}

func (t *Rules) opened() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.open++
}

// decide returns the fault of frame i of r.
func (t *Rules) decide(sent bool, r *link.Run, i int) (fault, time.Duration) {
	list := t.above.Load()
	if list == nil {
		return intact, 0
	}
	hit, _ := t.apply(*list, sent, r, r.Frame(i))
	if hit == nil {
		return intact, 0
	}
	return faults[hit.Action], hit.Delay
}

// ruled is a Faulter whose faults are decided by rules.
type ruled struct {
	*Faulter
	rules  *Rules
	closed sync.Once
}

func (r *ruled) Send(now ib.Instant, out []link.Run) (int, error) {
	if r.rules.above.Load() == nil && r.send.idle() {
		return r.Link.Send(now, out)
	}
	return r.Faulter.Send(now, out)
}

func (r *ruled) Recv(now ib.Instant, in []link.Run) (int, error) {
	if r.rules.above.Load() == nil && r.send.idle() && r.recv.idle() {
		return r.Link.Recv(now, in)
	}
	return r.Faulter.Recv(now, in)
}

func (r *ruled) Close() error {
	r.closed.Do(r.rules.linkClosed)
	return r.Link.Close()
}

// idle reports whether no frame waits.
func (l *injector) idle() bool { return len(l.out) == 0 && len(l.held) == 0 }

// ruleCorrupter is a Link that corrupts frames by rules.
type ruleCorrupter struct {
	link.Link
	rules      *Rules
	send, recv damage
	out        []link.Run
	closed     sync.Once
}

// damage is what was done to the runs of one call. Only copies are changed, because a sender sends again what is not
// taken, and a received buffer may have other readers.
type damage struct {
	hits    []hit
	scratch [][]byte // copies of corrupted runs
	copies  int      // how many of scratch are in use
}

// hit is a frame that a rule affects.
type hit struct {
	run  int
	rule *rule
}

func (d *ruleCorrupter) Send(now ib.Instant, out []link.Run) (int, error) {
	list := d.rules.below.Load()
	if list == nil {
		return d.Link.Send(now, out)
	}
	d.out = append(d.out[:0], out...)
	d.send.apply(d.rules, *list, true, d.out)
	n, err := d.Link.Send(now, d.out)
	d.send.takeBack(d.rules, n)
	return n, err
}

func (d *ruleCorrupter) Recv(now ib.Instant, in []link.Run) (int, error) {
	n, err := d.Link.Recv(now, in)
	if list := d.rules.below.Load(); list != nil && n > 0 {
		d.recv.apply(d.rules, *list, false, in[:n])
	}
	return n, err
}

// Keep gives away the copies of corrupted runs, too.
func (d *ruleCorrupter) Keep() {
	d.recv.scratch, d.recv.copies = nil, 0
	d.Link.Keep()
}

func (d *ruleCorrupter) Close() error {
	d.closed.Do(d.rules.linkClosed)
	return d.Link.Close()
}

// apply replaces the buffers of runs with affected frames by copies, and flips a bit in each of these frames.
func (d *damage) apply(t *Rules, list []*rule, sent bool, runs []link.Run) {
	d.hits, d.copies = d.hits[:0], 0
	for i := range runs {
		r, copied := &runs[i], false
		for f := range r.Frames() {
			struck, random := t.apply(list, sent, r, r.Frame(f))
			if struck == nil {
				continue
			}
			if !copied {
				r.Buf, copied = d.copy(r.Buf), true
			}
			flip(r.Frame(f), random)
			d.hits = append(d.hits, hit{i, struck})
		}
	}
}

func (d *damage) copy(b []byte) []byte {
	if d.copies == len(d.scratch) {
		d.scratch = append(d.scratch, nil)
	}
	s := &d.scratch[d.copies]
	d.copies++
	*s = append((*s)[:0], b...)
	return *s
}

// takeBack undoes the counting of hits on runs from the n-th on. They were not sent, and will be affected again when
// they are.
func (d *damage) takeBack(t *Rules, n int) {
	unspent := false
	for _, h := range d.hits {
		if h.run < n {
			continue
		}
		unspent = unspent || h.rule.spent()
		h.rule.hits.Add(^uint64(0))
		h.rule.matched.Add(^uint64(0))
	}
	if unspent {
		t.republish()
	}
}

// flip flips one of the bits that the ICRC covers; random chooses it.
func flip(frame []byte, random uint64) {
	bit := int(random % uint64((len(frame)-1)*8))
	if bit >= bthMasked*8 {
		bit += 8
	}
	frame[bit/8] ^= 1 << (bit % 8)
}

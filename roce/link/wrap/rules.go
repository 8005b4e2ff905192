package wrap

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/link"
	"github.com/goroce/goroce/wire"
)

// Limits of rules.
const (
	MaxRules     = 64 // in a table, including spent rules
	MaxRuleDelay = 10 * time.Second
)

// Action is what a rule does to a frame.
type Action string

// Actions.
const (
	ActDrop      Action = "drop"      // the frame is lost
	ActDelay     Action = "delay"     // the frame is passed on after Rule.Delay
	ActDuplicate Action = "duplicate" // the frame is passed on twice
	ActCorrupt   Action = "corrupt"   // one bit that the ICRC covers is flipped
)

// Direction says whether a rule applies to received or to sent frames; "" is both.
type Direction string

// Directions.
const (
	DirIn  Direction = "in"  // received
	DirOut Direction = "out" // sent
)

// Class is a group of opcodes; "" is all. See Classes.
type Class string

// classes has the opcodes of each class.
var classes = map[Class]func(wire.Opcode) bool{
	"":              func(wire.Opcode) bool { return true },
	"request":       wire.Opcode.IsRequest,
	"response":      wire.Opcode.IsResponse,
	"send":          wire.Opcode.IsSend,
	"write":         wire.Opcode.IsWrite,
	"read":          func(o wire.Opcode) bool { return o.IsRead() && o.IsRequest() },
	"read-response": wire.Opcode.IsReadResp,
	"atomic":        func(o wire.Opcode) bool { return o.IsAtomic() && o.IsRequest() },
	// NAKs and ATOMIC Acknowledges, too
	"ack": func(o wire.Opcode) bool { return o.IsResponse() && !o.IsReadResp() },
	"cnp": func(o wire.Opcode) bool { return o == wire.CNP },
}

// Classes returns all classes.
func Classes() []Class {
	return slices.Sorted(maps.Keys(classes))[1:] // without ""
}

// PSNRange is a range of PSNs, from First to Last modulo 2^24. It has at most half of all PSNs.
type PSNRange struct{ First, Last ib.PSN }

func (p *PSNRange) has(psn ib.PSN) bool { return !psn.Before(p.First) && !psn.After(p.Last) }

// Rule says what to do with which frames. A frame must meet all conditions that are set.
type Rule struct {
	Match
	Direction Direction
	Class     Class
	PSN       *PSNRange // nil for any

	Action Action
	Delay  time.Duration // of ActDelay, up to MaxRuleDelay

	Count       uint64  // number of frames that are affected; 0 for no limit
	Probability float64 // probability that a frame which meets the conditions is affected; 0 stands for 1
	// Seed makes the choice of frames, and of bits to flip, repeatable. 0 chooses a random seed.
	Seed uint64

	TTL time.Duration // time until the rule is removed; 0 for never
}

// check refuses invalid rules.
func (r *Rule) check() error {
	const op = "add fault rule"
	if err := r.Match.check(op); err != nil {
		return err
	}
	delayed := r.Action == ActDelay
	for _, c := range []struct {
		ok      bool
		attr    string
		value   any
		allowed string
	}{
		{faults[r.Action] != intact, "Action", r.Action, "drop, delay, duplicate, corrupt"},
		{r.Direction == "" || r.Direction == DirIn || r.Direction == DirOut, "Direction", r.Direction,
			"in, out, or empty for both"},
		{classes[r.Class] != nil, "Class", r.Class, fmt.Sprintf("%s, or empty for all",
			strings.Join(classNames(), ", "))},
		{r.PSN == nil || r.PSN.valid(), "PSN", r.PSN, "24 bits each, First not after Last, at most half of all"},
		{!delayed || r.Delay > 0 && r.Delay <= MaxRuleDelay, "Delay", r.Delay,
			fmt.Sprintf("more than 0, up to %v", MaxRuleDelay)},
		{delayed || r.Delay == 0, "Delay", r.Delay, "0, unless the action is delay"},
		{r.Probability >= 0 && r.Probability <= 1, "Probability", r.Probability, "more than 0 up to 1; 0 stands for 1"},
		{r.TTL >= 0, "TTL", r.TTL, "0 for no end, or more"},
	} {
		if !c.ok {
			return ib.Refuse(op, c.attr, c.value, c.allowed, ib.ErrInvalid)
		}
	}
	return nil
}

func classNames() []string {
	var names []string
	for _, c := range Classes() {
		names = append(names, string(c))
	}
	return names
}

func (p *PSNRange) valid() bool {
	return p.First <= ib.PSNMask && p.Last <= ib.PSNMask && !p.Last.Before(p.First)
}

func (p *PSNRange) String() string { return fmt.Sprintf("%d-%d", p.First, p.Last) }

// RuleStatus is the state of a rule in a table.
type RuleStatus struct {
	ID uint64 // unique in the table, from 1 on
	Rule
	Matched uint64 // frames that have met the conditions while the rule was not spent
	Hits    uint64 // frames that were affected
}

// Rules is a table of faults that can be changed while the links run. While it is empty, or all rules are spent, it
// costs the links one atomic load for each call. The zero value is ready. All links of a device share one table.
//
// A frame is compared with the rules in the order in which they were added, and the first that applies decides. Rules
// that corrupt frames come after all others. A rule whose Count is used up is spent: it has no further effect, but
// stays in the table to be listed.
//
// Any goroutine may call the methods at any time.
type Rules struct {
	above, below atomic.Pointer[[]*rule] // rules that are not spent; those that corrupt are in below; nil for none

	mu   sync.Mutex // guards the fields below, and changes of above and below
	all  []*rule    // by ID
	last uint64     // last ID assigned
	open int        // wrappers that are not closed
}

// rule is a Rule with its state.
type rule struct {
	Rule
	id            uint64
	class         func(wire.Opcode) bool
	matched, hits atomic.Uint64
	timer         *time.Timer // nil without TTL
}

// Add adds a rule at the end and returns its status with ID and seed. The error is an *ib.AttrError: it says what is
// wrong with the rule or, with ib.ErrLimit, that there are MaxRules already.
func (t *Rules) Add(r Rule) (RuleStatus, error) {
	if err := r.check(); err != nil {
		return RuleStatus{}, err
	}
	r.Probability = cmp.Or(r.Probability, 1)
	for r.Seed == 0 {
		r.Seed = rand.Uint64() >> 11 // so that it fits a number in JSON
	}
	if r.PSN != nil {
		psn := *r.PSN
		r.PSN = &psn
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.all) >= MaxRules {
		return RuleStatus{}, ib.Refuse("add fault rule", "rules", len(t.all),
			fmt.Sprintf("less than %d; remove one first, those that are spent count too", MaxRules), ib.ErrLimit)
	}
	t.last++
	added := &rule{Rule: r, id: t.last, class: classes[r.Class]}
	if r.TTL > 0 {
		added.timer = time.AfterFunc(r.TTL, func() { _ = t.Remove(added.id) })
	}
	t.all = append(t.all, added)
	t.publish()
	return added.status(), nil
}

// Remove removes a rule; an *ib.AttrError says that it does not exist. Frames that the rule has delayed are still
// passed on when they are due.
func (t *Rules) Remove(id uint64) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	i := slices.IndexFunc(t.all, func(r *rule) bool { return r.id == id })
	if i < 0 {
		return ib.Refuse("remove fault rule", "ID", id, "the ID of a rule; list them", ib.ErrInvalid)
	}
	t.all[i].stop()
	t.all = slices.Delete(t.all, i, i+1)
	t.publish()
	return nil
}

// Clear removes all rules and returns how many there were.
func (t *Rules) Clear() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := len(t.all)
	for _, r := range t.all {
		r.stop()
	}
	t.all = nil
	t.publish()
	return n
}

// List returns the rules in their order.
func (t *Rules) List() []RuleStatus {
	t.mu.Lock()
	defer t.mu.Unlock()
	list := make([]RuleStatus, len(t.all))
	for i, r := range t.all {
		list[i] = r.status()
	}
	return list
}

// publish updates above and below. The caller holds mu.
func (t *Rules) publish() {
	var above, below []*rule
	for _, r := range t.all {
		switch {
		case r.spent():
		case r.Action == ActCorrupt:
			below = append(below, r)
		default:
			above = append(above, r)
		}
	}
	show(&t.above, above)
	show(&t.below, below)
}

func show(p *atomic.Pointer[[]*rule], list []*rule) {
	if len(list) == 0 {
		p.Store(nil)
		return
	}
	p.Store(&list)
}

// republish calls publish for the links, after a rule has become spent, or is not spent any more.
func (t *Rules) republish() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.publish()
}

// linkClosed stops the timers when the last link is closed.
func (t *Rules) linkClosed() {
	t.mu.Lock()
	t.open--
	last := t.open == 0
	t.mu.Unlock()
	if last {
		t.Clear()
	}
}

func (r *rule) status() RuleStatus {
	return RuleStatus{ID: r.id, Rule: r.Rule, Matched: r.matched.Load(), Hits: r.hits.Load()}
}

func (r *rule) stop() {
	if r.timer != nil {
		r.timer.Stop()
	}
}

func (r *rule) spent() bool { return r.Count > 0 && r.hits.Load() >= r.Count }

// holds reports whether a frame of run meets the conditions.
func (r *rule) holds(sent bool, run *link.Run, frame []byte) bool {
	if r.Direction == DirIn && sent || r.Direction == DirOut && !sent || len(frame) < wire.BTHLen {
		return false
	}
	if r.PSN != nil {
		psn := ib.PSN(frame[9])<<16 | ib.PSN(frame[10])<<8 | ib.PSN(frame[11]) // IBTA 9.2.1
		if !r.PSN.has(psn) {
			return false
		}
	}
	return r.class(wire.Opcode(frame[0])) && r.Match.frame(sent, run, frame)
}

// draw decides by count and chance whether a frame that meets the conditions is affected. It also returns a random
// number, which depends only on the seed and on how many frames have met the conditions.
func (r *rule) draw() (random uint64, ok bool) {
	random = mix(r.Seed + r.matched.Add(1)*goldenRatio)
	if float64(random>>11)/(1<<53) >= r.Probability {
		return random, false
	}
	for {
		hits := r.hits.Load()
		if r.Count > 0 && hits >= r.Count {
			return random, false
		}
		if r.hits.CompareAndSwap(hits, hits+1) {
			return random, true
		}
	}
}

// goldenRatio is 2^64 over the golden ratio, the step of SplitMix64.
const goldenRatio = 0x9E3779B97F4A7C15

// mix is the output function of SplitMix64 (Steele, Lea, Flood 2014).
func mix(z uint64) uint64 {
	z = (z ^ z>>30) * 0xBF58476D1CE4E5B9
	z = (z ^ z>>27) * 0x94D049BB133111EB
	return z ^ z>>31
}

// apply returns the first rule that affects a frame of run, or nil.
func (t *Rules) apply(list []*rule, sent bool, run *link.Run, frame []byte) (*rule, uint64) {
	for _, r := range list {
		if r.spent() || !r.holds(sent, run, frame) {
			continue
		}
		random, ok := r.draw()
		if !ok {
			continue
		}
		if r.spent() {
			t.republish()
		}
		return r, random
	}
	return nil, 0
}

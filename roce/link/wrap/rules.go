package wrap

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/ib/driver"
	"github.com/goroce/goroce/roce/link"
)

// MaxRules is how many rules a table has at most, including spent ones.
const MaxRules = 64

// RuleStatus is the state of a rule in a table.
type RuleStatus struct {
	ID uint64 // unique in the table, from 1 on
	Rule
	Matched uint64        // frames that have met the conditions while the rule was not spent
	Hits    uint64        // frames that were affected
	Left    time.Duration // until it is removed; 0 if it stays
}

// Rules is a table of faults that can be changed while the links run. While it is empty, or all rules are spent, it
// costs the links one atomic load for each call. The zero value is ready. All links of a device share one table.
//
// A frame is compared with the rules in the order in which they were added, and the first that applies decides. Rules
// that corrupt or truncate frames come after all others. A rule whose Count is used up is spent: it has no further
// effect, but stays in the table to be listed.
//
// Frames that wait are held in each link. While maxHeld of them wait, others do not: ActLimit drops them, and ActDelay
// and ActReorder leave them as they are.
//
// Any goroutine may call the methods at any time.
type Rules struct {
	// OnChange, if not nil, is told of each rule that is added or removed, also at the end of its TTL. Set it before
	// the first use.
	OnChange func(r RuleStatus, added bool)

	// The rules that are not spent. Lower are those that damage frames, or the path of a FaultConfig; upper are the
	// others.
	upper, lower stage

	mu   sync.Mutex // guards the fields below, and changes of upper and lower
	all  []*rule    // by ID
	last uint64     // last ID assigned
	open int        // wrappers that are not closed
}

// stage has the rules for frames of each direction that a link applies; nil for none.
type stage [2]atomic.Pointer[[]*rule]

// Directions, as indices.
const (
	outgoing = iota
	incoming
)

// Add adds a rule at the end and returns its status with ID and seed. The error is an *ib.AttrError: it says what is
// wrong with the rule or, with ib.ErrLimit, that there are MaxRules already.
func (t *Rules) Add(r Rule) (RuleStatus, error) {
	if r.Action == ActTruncate && r.Direction == "" {
		r.Direction = DirIn
	}
	if err := r.check(); err != nil {
		return RuleStatus{}, err
	}
	switch r.Action {
	case ActReorder:
		r.Delay = cmp.Or(r.Delay, DefaultMaxDelay)
	case ActLimit:
		r.Buffer = cmp.Or(r.Buffer, DefaultBuffer)
	}
	r.Probability = cmp.Or(r.Probability, 1)
	for r.Seed == 0 {
		r.Seed = rand.Uint64() >> 11 // so that it fits a number in JSON
	}
	if r.PSN != nil {
		psn := *r.PSN
		r.PSN = &psn
	}
	st, err := t.add(r)
	if err == nil {
		t.changed(true, st)
	}
	return st, err
}

func (t *Rules) changed(added bool, rules ...RuleStatus) {
	if t.OnChange == nil {
		return
	}
	for _, r := range rules {
		t.OnChange(r, added)
	}
}

func (t *Rules) add(r Rule) (RuleStatus, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.all) >= MaxRules {
		return RuleStatus{}, driver.Refuse("add fault rule", "rules", len(t.all),
			fmt.Sprintf("less than %d; remove one first, those that are spent count too", MaxRules), ib.ErrLimit)
	}
	t.last++
	added := newRule(r)
	added.id = t.last
	if r.TTL > 0 {
		added.ends = time.Now().Add(r.TTL)
		added.timer = time.AfterFunc(r.TTL, func() { _ = t.Remove(added.id) })
	}
	t.all = append(t.all, added)
	t.publish()
	return added.status(), nil
}

// Remove removes a rule; an *ib.AttrError says that it does not exist. Frames that the rule has delayed are still
// passed on when they are due.
func (t *Rules) Remove(id uint64) error {
	st, err := t.remove(id)
	if err == nil {
		t.changed(false, st)
	}
	return err
}

func (t *Rules) remove(id uint64) (st RuleStatus, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	i := slices.IndexFunc(t.all, func(r *rule) bool { return r.id == id })
	if i < 0 {
		return st, driver.Refuse("remove fault rule", "ID", id, "the ID of a rule; list them", ib.ErrInvalid)
	}
	st = t.all[i].status()
	t.all[i].stop()
	t.all = slices.Delete(t.all, i, i+1)
	t.publish()
	return st, nil
}

// Clear removes all rules and returns how many there were.
func (t *Rules) Clear() int {
	list := t.clear()
	t.changed(false, list...)
	return len(list)
}

func (t *Rules) clear() (list []RuleStatus) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, r := range t.all {
		list = append(list, r.status())
		r.stop()
	}
	t.all = nil
	t.publish()
	return list
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

// publish updates upper and lower. The caller holds mu.
func (t *Rules) publish() {
	for direction, other := range [...]Direction{outgoing: DirIn, incoming: DirOut} {
		var upper, lower []*rule
		for _, r := range t.all {
			switch {
			case r.spent() || r.Direction == other:
			case r.Action == ActCorrupt || r.Action == ActTruncate:
				lower = append(lower, r)
			default:
				upper = append(upper, r)
			}
		}
		show(&t.upper[direction], upper)
		show(&t.lower[direction], lower)
	}
}

func show(p *atomic.Pointer[[]*rule], list []*rule) {
	if len(list) == 0 {
		p.Store(nil)
		return
	}
	p.Store(&list)
}

// republish calls publish for the links, after a rule has become spent.
func (t *Rules) republish() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.publish()
}

// Above returns a Link on which frames suffer what leaves them whole. It belongs above Seal, as Fault does; the Link of
// t.Below belongs below Seal.
func (t *Rules) Above(l link.Link) link.Link { return newFaulter(l, t, &t.upper) }

// Below returns a Link on which frames are damaged: after they were sealed, or before the device checks them. It does
// not split runs that are sent.
func (t *Rules) Below(l link.Link) link.Link { return newFaulter(l, t, &t.lower) }

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

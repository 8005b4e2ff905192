package wrap

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/ib/driver"
	"github.com/goroce/goroce/roce/link"
	"github.com/goroce/goroce/roce/link/internal/runs"
	"github.com/goroce/goroce/wire"
)

// Limits of a Rule.
const (
	MaxRuleDelay = 10 * time.Second // longest Delay and Jitter
	MinRate      = 1_000_000        // lowest and highest Rate
	MaxRate      = 1_000_000_000_000
	MaxBuffer    = time.Second // longest Buffer
	maxPacket    = 65535       // largest Larger
)

// Action is what a rule does to a frame.
type Action string

// Actions.
const (
	ActDrop      Action = "drop"      // the frame is lost
	ActDelay     Action = "delay"     // the frame is passed on after Rule.Delay and a random time up to Rule.Jitter
	ActDuplicate Action = "duplicate" // the frame is passed on twice
	ActCorrupt   Action = "corrupt"   // one bit that the ICRC covers is flipped
	ActReorder   Action = "reorder"   // the frame is passed on after the next between the same hosts, or after Delay
	ActMark      Action = "mark"      // with Congestion Experienced (RFC 3168), whether or not its sender knows ECN
	ActTruncate  Action = "truncate"  // the end of the frame is missing, at least 4 bytes; of received frames only
	ActLimit     Action = "limit"     // the frame leaves a bottleneck of Rule.Rate, or is lost for lack of room
)

// Actions that only a FaultConfig has, and none.
const (
	actPass        Action = ""
	actBadChecksum Action = "bad checksum" // see FaultConfig.BadChecksum
)

// Actions returns all actions of rules.
func Actions() []Action {
	return []Action{ActDrop, ActDelay, ActDuplicate, ActCorrupt, ActReorder, ActMark, ActTruncate, ActLimit}
}

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

	Larger int   // the frame is in an IP packet of more bytes; 0 for any
	Burst  Burst // unless Begin is 0, the rule affects frames during bursts only; Loss is 0, Probability stands for it

	Action Action
	Delay  time.Duration // of ActDelay and ActReorder, up to MaxRuleDelay; with ActReorder 0 is DefaultMaxDelay
	Jitter time.Duration // of ActDelay: random time of up to this, besides Delay; up to MaxRuleDelay
	Rate   int64         // of ActLimit: bits of IP packets in a second, MinRate to MaxRate, in each direction
	Buffer time.Duration // of ActLimit: longest wait for a frame's turn, up to MaxBuffer; 0 is DefaultBuffer

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
	within := func(d, most time.Duration) bool { return d >= 0 && d <= most }
	delayed, limited, reordered := r.Action == ActDelay, r.Action == ActLimit, r.Action == ActReorder
	for _, c := range []struct {
		ok      bool
		attr    string
		value   any
		allowed string
	}{
		{slices.Contains(Actions(), r.Action), "Action", r.Action, strings.Join(texts(Actions()), ", ")},
		{r.Direction == "" || r.Direction == DirIn || r.Direction == DirOut, "Direction", r.Direction,
			"in, out, or empty for both"},
		{classes[r.Class] != nil, "Class", r.Class, fmt.Sprintf("%s, or empty for all",
			strings.Join(texts(Classes()), ", "))},
		{r.PSN == nil || r.PSN.valid(), "PSN", r.PSN, "24 bits each, First not after Last, at most half of all"},
		{!delayed || within(r.Delay, MaxRuleDelay) && r.Delay+r.Jitter > 0, "Delay", r.Delay,
			fmt.Sprintf("more than 0, up to %v; 0 with Jitter", MaxRuleDelay)},
		{!reordered || within(r.Delay, MaxRuleDelay), "Delay", r.Delay, fmt.Sprintf("up to %v", MaxRuleDelay)},
		{delayed || reordered || r.Delay == 0, "Delay", r.Delay, "0, unless the action is delay or reorder"},
		{!delayed || within(r.Jitter, MaxRuleDelay), "Jitter", r.Jitter, fmt.Sprintf("up to %v", MaxRuleDelay)},
		{delayed || r.Jitter == 0, "Jitter", r.Jitter, "0, unless the action is delay"},
		{!limited || r.Rate >= MinRate && r.Rate <= MaxRate, "Rate", r.Rate,
			fmt.Sprintf("%d to %d bit/s", MinRate, MaxRate)},
		{limited || r.Rate == 0, "Rate", r.Rate, "0, unless the action is limit"},
		{!limited || within(r.Buffer, MaxBuffer), "Buffer", r.Buffer, fmt.Sprintf("up to %v", MaxBuffer)},
		{limited || r.Buffer == 0, "Buffer", r.Buffer, "0, unless the action is limit"},
		{r.Larger >= 0 && r.Larger <= maxPacket, "Larger", r.Larger, fmt.Sprintf("up to %d", maxPacket)},
		{r.Burst.valid(), "Burst", r.Burst, "probabilities of its begin and its end, more than 0 up to 1, or none"},
		{r.Action != ActTruncate || r.Direction == DirIn, "Direction", r.Direction, "in, as the action is truncate"},
		{r.Probability >= 0 && r.Probability <= 1, "Probability", r.Probability, "more than 0 up to 1; 0 stands for 1"},
		{r.TTL >= 0, "TTL", r.TTL, "0 for no end, or more"},
	} {
		if !c.ok {
			return driver.Refuse(op, c.attr, c.value, c.allowed, ib.ErrInvalid)
		}
	}
	return nil
}

// texts returns names as strings.
func texts[T ~string](names []T) (list []string) {
	for _, n := range names {
		list = append(list, string(n))
	}
	return list
}

// String returns the probabilities in words.
func (b Burst) String() string {
	text := fmt.Sprintf("begin %v, end %v", b.Begin, b.End)
	if b.Loss != 0 {
		text += fmt.Sprintf(", loss %v", b.Loss)
	}
	return text
}

// valid reports whether a rule may have the bursts.
func (b *Burst) valid() bool {
	return *b == (Burst{}) || b.Begin > 0 && b.Begin <= 1 && b.End > 0 && b.End <= 1 && b.Loss == 0
}

func (p *PSNRange) valid() bool {
	return p.First <= ib.PSNMask && p.Last <= ib.PSNMask && !p.Last.Before(p.First)
}

func (p *PSNRange) String() string { return fmt.Sprintf("%d-%d", p.First, p.Last) }

// rule is a Rule with its state.
type rule struct {
	Rule
	id            uint64
	class         func(wire.Opcode) bool
	matched, hits atomic.Uint64
	inBurst       atomic.Bool
	queues        *[2]queue   // by direction; nil without a Rate
	timer         *time.Timer // nil without TTL
	ends          time.Time   // by the timer
}

func newRule(r Rule) *rule {
	n := &rule{Rule: r, class: classes[r.Class]}
	if r.Rate > 0 {
		n.queues = &[2]queue{{rate: r.Rate, buffer: r.Buffer}, {rate: r.Rate, buffer: r.Buffer}}
	}
	return n
}

func (r *rule) status() RuleStatus {
	st := RuleStatus{ID: r.id, Rule: r.Rule, Matched: r.matched.Load(), Hits: r.hits.Load()}
	if r.timer != nil {
		st.Left = max(time.Until(r.ends), 1)
	}
	return st
}

func (r *rule) stop() {
	if r.timer != nil {
		r.timer.Stop()
	}
}

func (r *rule) spent() bool { return r.Count > 0 && r.hits.Load() >= r.Count }

// holds reports whether a frame of run meets the conditions, apart from the direction.
func (r *rule) holds(direction int, run *link.Run, frame []byte) bool {
	if len(frame) < wire.BTHLen || r.Larger > 0 && packetLen(run, frame) <= r.Larger {
		return false
	}
	if r.PSN != nil {
		psn := ib.PSN(frame[9])<<16 | ib.PSN(frame[10])<<8 | ib.PSN(frame[11]) // IBTA 9.2.1
		if !r.PSN.has(psn) {
			return false
		}
	}
	return r.class(wire.Opcode(frame[0])) && r.Match.frame(direction == outgoing, run, frame)
}

// packetLen returns the length of the IP packet with a frame of run.
func packetLen(run *link.Run, frame []byte) int { return runs.Overhead(run) + len(frame) }

// draw decides by bursts, chance and count whether a frame that meets the conditions is affected. It also returns a
// random number for the effect. Both depend only on the seed and on how many frames have met the conditions.
func (r *rule) draw() (random uint64, ok bool) {
	random = mix(r.Seed + r.matched.Add(1)*goldenRatio)
	if r.Burst.Begin > 0 {
		if !r.bursts(random) {
			return 0, false
		}
		random = mix(random)
	}
	if !chance(random, r.Probability) {
		return 0, false
	}
	for {
		hits := r.hits.Load()
		if r.Count > 0 && hits >= r.Count {
			return 0, false
		}
		if r.hits.CompareAndSwap(hits, hits+1) {
			return mix(random), true
		}
	}
}

// bursts reports whether the next frame is in a burst.
func (r *rule) bursts(random uint64) bool {
	in := r.inBurst.Load()
	turn := r.Burst.Begin
	if in {
		turn = r.Burst.End
	}
	if chance(random, turn) {
		in = !in
		r.inBurst.Store(in)
	}
	return in
}

// effect is what happens to a frame.
type effect struct {
	Action
	wait   time.Duration // how long, if it waits
	random uint64        // for what the action has to choose
}

// effect returns what happens to a frame of run that r affects.
func (r *rule) effect(now ib.Instant, direction int, run *link.Run, frame []byte, random uint64) effect {
	e := effect{Action: r.Action, wait: r.Delay, random: random}
	if r.Jitter > 0 {
		e.wait += time.Duration(random % uint64(r.Jitter+1))
	}
	if r.queues != nil {
		wait, ok := r.queues[direction].enter(now, packetLen(run, frame))
		if !ok {
			return effect{Action: ActDrop}
		}
		e.Action, e.wait = ActDelay, e.wait+wait
	}
	if e.Action == ActDelay && e.wait <= 0 {
		return effect{}
	}
	return e
}

// waits reports whether the frame goes on later.
func (e *effect) waits() bool { return e.Action == ActDelay || e.Action == ActReorder }

// goesOn reports whether the frame goes on now.
func (e *effect) goesOn() bool {
	return !e.waits() && e.Action != ActDrop && e.Action != actBadChecksum
}

// chance returns true with probability p.
func chance(random uint64, p float64) bool { return float64(random>>11)/(1<<53) < p }

// goldenRatio is 2^64 over the golden ratio, the step of SplitMix64.
const goldenRatio = 0x9E3779B97F4A7C15

// mix is the output function of SplitMix64 (Steele, Lea, Flood 2014).
func mix(z uint64) uint64 {
	z = (z ^ z>>30) * 0xBF58476D1CE4E5B9
	z = (z ^ z>>27) * 0x94D049BB133111EB
	return z ^ z>>31
}

package wrap

import (
	"cmp"
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
func (c *FaultConfig) Perfect() bool { return len(c.chances(0)) == 0 && len(c.path(0)) == 0 }

// chances are the rules for what happens by chance to frames of one direction. The first rule that affects a frame
// excludes the others, so each has the probability of its fault among the frames that the rules before it leave.
func (c *FaultConfig) chances(direction int) []*rule {
	loss := 0.0
	if c.Burst.Begin > 0 {
		loss = cmp.Or(c.Burst.Loss, 1)
	}
	list := []Rule{
		{Action: ActDrop, Probability: loss, Burst: c.Burst},
		{Action: ActDrop, Probability: c.Drop},
		{Action: ActDuplicate, Probability: c.Duplicate},
		{Action: ActReorder, Probability: c.Reorder, Delay: c.MaxDelay},
		{Action: ActDelay, Probability: c.Delay, Delay: 1, Jitter: c.MaxDelay - 1},
		{Action: ActDelay, Probability: c.Late, Delay: c.LateBy},
		{Action: actBadChecksum, Probability: c.BadChecksum},
		{Action: ActMark, Probability: c.MarkCE},
		{Action: ActCorrupt, Probability: c.Corrupt},
		{Action: ActTruncate, Probability: c.Truncate},
	}
	left := 1.0
	for i := range list[1:] { // loss in bursts comes on top
		r := &list[1+i]
		p := r.Probability
		r.Probability, left = p/left, left-p
	}
	return c.seeded(list, 2*direction)
}

// path are the rules for what happens to all frames of one direction, after those of chances.
func (c *FaultConfig) path(direction int) []*rule {
	var list []Rule
	if c.BlackHole > 0 {
		list = append(list, Rule{Action: ActDrop, Probability: 1, Larger: c.BlackHole})
	}
	if c.Latency > 0 || c.Jitter > 0 || c.Rate > 0 {
		list = append(list, Rule{Action: ActDelay, Probability: 1, Delay: c.Latency, Jitter: c.Jitter, Rate: c.Rate,
			Buffer: c.Buffer})
	}
	return c.seeded(list, 2*direction+1)
}

// seeded returns the rules of list that can affect a frame. Each has a seed of its own, which depends on its place in
// list and on stream.
func (c *FaultConfig) seeded(list []Rule, stream int) []*rule {
	rules := []*rule{}
	for i, r := range list {
		if r.Probability > 0 {
			r.Seed = mix(mix(c.Seed) + uint64(stream<<8+i))
			rules = append(rules, newRule(r))
		}
	}
	return rules
}

// FaultCounts counts frames by what happened to them. Passed are those that suffered no fault
// by chance; if they were sent, the path may still drop them, and they are in Dropped as well.
type FaultCounts struct {
	Passed, Dropped, Duplicated, Reordered, Delayed uint64
	BadChecksums, Marked, Corrupted, Truncated      uint64
}

// Fault returns a Link that does to frames what a bad network does, except Corrupt and
// Truncate. It belongs above Seal, because it splits runs around the frames that suffer a
// fault, and a frame that was damaged above Seal would get a correct ICRC. The frames between
// them stay in one run, unless c has a path.
func Fault(l link.Link, c FaultConfig) *Faulter {
	c.Corrupt, c.Truncate = 0, 0
	return Network(l, c)
}

// Corrupt returns a Link that flips one bit in each frame sent with probability
// c.Corrupt, determined by c.Seed; it does nothing else of c. It belongs below Seal: a
// receiver must notice and drop every damaged frame. Unlike Network it does not split
// runs, so it suits every link.
func Corrupt(l link.Link, c FaultConfig) *Faulter {
	return Network(l, FaultConfig{Seed: c.Seed, Corrupt: c.Corrupt})
}

// Network is Fault with Corrupt and Truncate. It belongs below Seal. l must not number
// the frames of a run by their place (link.IDIndex), unless its faults are OnRecv.
func Network(l link.Link, c FaultConfig) *Faulter {
	c.MaxDelay, c.Buffer = cmp.Or(c.MaxDelay, DefaultMaxDelay), cmp.Or(c.Buffer, DefaultBuffer)
	t := new(Rules)
	for direction, on := range [...]bool{outgoing: c.OnSend || !c.OnRecv, incoming: c.OnRecv} {
		if on {
			chances, path := c.chances(direction), c.path(direction)
			t.upper[direction].Store(&chances) // even if it is empty: the frames are to be counted
			show(&t.lower[direction], path)
		}
	}
	path := newFaulter(l, t, &t.lower)
	path.most, path.beyond = maxOnPath, ActDrop
	f := newFaulter(path, t, &t.upper)
	path.counts[ActDrop] = f.counts[ActDrop]
	for _, f := range []*Faulter{path, f} {
		f.onDrop, f.onBadChecksum = c.OnDrop, c.OnBadChecksum
	}
	return f
}

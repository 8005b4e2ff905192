// Package ipid checks the ICRC of packets whose IPv4 identification the receiver cannot see.
package ipid

import (
	"sync/atomic"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/link"
	"github.com/goroce/goroce/wire"
)

// Tracker checks ICRCs where the IPv4 identification, which the ICRC covers,
// is not known: a plain UDP socket does not deliver it.
//
// The CRC is linear, so the received ICRC can be solved for the identification:
// a corrupt packet has a solution once in 65,536 times only. To regain most of
// the other 16 bits of protection, the solution must be one that the source would use next.
// Linux hosts use 0, or the index in a run that segmentation offload numbered, or
// a counter per destination that increases by one per packet and, after idle time, by up
// to the number of milliseconds that have passed (ip_idents_reserve). A packet may arrive
// very late: a processor of the host can pause between numbering and sending it, while the
// other processors send. An identification that does not fit is remembered and its packet
// dropped; if the next packet's continues from it, the counter has jumped.
//
// With several shards each sees some of a counter's values only, so it allows for the
// packets that the other shards have accepted.
type Tracker struct {
	sources [numSources]Source
}

// Source is the state of one sender's identifications.
type Source struct {
	all       *atomic.Uint32 // number that all shards have accepted by counter; nil with one shard
	own       uint32         // this shard's part of all
	elsewhere uint32         // the other shards' part of all when last was accepted

	src, dst ib.GID
	counts   bool       // the sender uses a counter, and last is valid
	last     uint16     // highest accepted identification
	at       ib.Instant // when last was accepted
	jumped   bool       // the latest identification was refused, but the counter may have jumped
	jump     uint16     // the refused identification
}

const (
	numSources  = 256
	runIDs      = 128 // offload numbers a run 0 to 127 at most
	slack       = 64  // most by which an identification may skip ahead: packets before it were lost
	overtaken   = 512 // most by which an identification may lag behind: later packets overtook it
	nsPerMilli  = 1_000_000
	fnvOffset   = 2166136261
	fnvPrime    = 16777619
	gidHashFrom = 8 // hash the lower half of a GID, which differs between hosts
)

// Source returns the entry for a run's sender; nil if the identification is known or the
// run is not IPv4. Senders that hash to the same entry replace each other's state, which only
// makes the check weaker.
func (t *Tracker) Source(run *link.Run) *Source {
	if run.KnownID || !run.Src.Is4() {
		return nil
	}
	h := uint32(fnvOffset)
	for i := gidHashFrom; i < len(run.Src); i++ {
		h = (h ^ uint32(run.Src[i])) * fnvPrime
		h = (h ^ uint32(run.Dst[i])) * fnvPrime
	}
	e := &t.sources[h%numSources]
	if e.src != run.Src || e.dst != run.Dst {
		*e = Source{all: e.all, own: e.own, elsewhere: e.others(), src: run.Src, dst: run.Dst}
	}
	return e
}

// Check decides whether to accept the i-th frame of a run. The frame has at least BTH and
// ICRC, and its ICRC does not match the expected identification run.ID + i (run.ID is 0 if
// it is not known). Check also accepts the ICRC that rdma_rxe computes for a FLUSH.
func (t *Tracker) Check(now ib.Instant, e *Source, o *wire.Outer, run *link.Run, i int, frame []byte) bool {
	ok := t.checkOne(now, e, o, run, i, frame)
	if !ok && wire.Opcode(frame[0]) == wire.RCFlush {
		o.Twice = true
		ok = t.checkOne(now, e, o, run, i, frame)
		o.Twice = false
	}
	return ok
}

func (t *Tracker) checkOne(now ib.Instant, e *Source, o *wire.Outer, run *link.Run, i int, frame []byte) bool {
	o.ID = run.ID + uint16(i)
	if o.Check(frame) {
		return true
	}
	if e == nil {
		o.ID = run.ID // a merged run has only the identification of its first frame
		return i > 0 && run.KnownID && o.Check(frame)
	}
	id, ok := o.SolveID(frame)
	return ok && e.plausible(now, id)
}

// plausible reports whether a source would use id now, and updates the source's state.
func (e *Source) plausible(now ib.Instant, id uint16) bool {
	step := int(int16(id - e.last))
	idle := int(min((now-e.at)/nsPerMilli, 1<<15))
	switch {
	case e.counts && step > 0 && step <= slack+idle+int(e.others()-e.elsewhere),
		e.jumped && goesOn(id, e.jump),
		!e.counts && id >= runIDs:
		e.counts, e.jumped, e.last, e.at = true, false, id, now
		e.count()
		return true
	case id < runIDs, e.counts && step <= 0 && step >= -overtaken:
		return true
	}
	e.jump, e.jumped = id, true
	return false
}

// count notes that an identification was accepted.
func (e *Source) count() {
	if e.all == nil {
		return
	}
	e.own++
	e.elsewhere = e.all.Add(1) - e.own
}

// others returns how many identifications other shards have accepted.
func (e *Source) others() uint32 {
	if e.all == nil {
		return 0
	}
	return e.all.Load() - e.own
}

// Share makes the trackers of a device's shards share their counts of accepted packets by
// source. It is called before any of them is used.
func Share(trackers []*Tracker) {
	all := new([numSources]atomic.Uint32)
	for _, t := range trackers {
		for i := range t.sources {
			t.sources[i].all = &all[i]
		}
	}
}

// goesOn reports whether id follows the refused identification jump.
func goesOn(id, jump uint16) bool {
	step := int16(id - jump)
	return step > 0 && step <= slack
}

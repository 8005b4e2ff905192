// Package ipid checks the ICRC of packets whose IPv4 identification is not known.
package ipid

import (
	"sync/atomic"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/link"
	"github.com/goroce/goroce/wire"
)

// Tracker checks ICRCs where the IPv4 identification, which the ICRC covers,
// is not known: a plain UDP socket does not show it.
//
// The CRC is linear, so the received ICRC can be solved for the identification:
// a corrupt packet has a solution once in 65,536 times only. To win back most of
// the other 16 bits the solution must be one that the source would use next.
// Linux hosts use 0, or the place in a run that segmentation offload numbered, or
// a counter per destination that steps by one packet and, when it was idle, by up
// to as many as milliseconds have passed (ip_idents_reserve). A packet may come much
// too late: a processor of the host can pause between numbering it and sending it,
// while the others go on. What does not fit is dropped and remembered; if the next
// packet goes on from there, the counter did jump.
//
// With several shards each sees some of a counter's values, so it allows for those
// that the others have seen.
type Tracker struct {
	sources [numSources]Source
}

// Source is what is known of one sender's identifications.
type Source struct {
	all       *atomic.Uint32 // what all shards have accepted by counter; nil with one shard
	own       uint32         // this one's share
	elsewhere uint32         // the others' when last was accepted

	src, dst ib.GID
	counts   bool       // uses a counter: last is valid
	last     uint16     // highest accepted
	at       ib.Instant // when that was
	jumped   bool       // the latest was refused, though the counter may have jumped
	jump     uint16     // to here
}

const (
	numSources  = 256
	runIDs      = 128 // offload numbers a run 0 to 127 at most
	slack       = 64  // packets that may be missing
	overtaken   = 512 // packets that may have overtaken one
	nsPerMilli  = 1_000_000
	fnvOffset   = 2166136261
	fnvPrime    = 16777619
	gidHashFrom = 8 // the lower half of a GID tells hosts apart
)

// Source finds the entry for a run's sender, nil where the identification plays
// no part. Senders that fall on the same entry take it from each other, which
// only costs checking power.
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

// Check decides on the i-th frame of a run, of which at least BTH and ICRC are
// there, and whose ICRC does not fit the likely identification: run.ID + i, where
// run.ID is 0 if it is not known. A FLUSH may have the ICRC that rdma_rxe computes.
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
		o.ID = run.ID // of a merged run only the first is shown
		return i > 0 && run.KnownID && o.Check(frame)
	}
	id, ok := o.SolveID(frame)
	return ok && e.plausible(now, id)
}

// plausible decides whether a source would use id now, and learns from it.
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

// others returns what other shards have accepted.
func (e *Source) others() uint32 {
	if e.all == nil {
		return 0
	}
	return e.all.Load() - e.own
}

// Share makes the trackers of a device's shards know of each other's packets by source.
// It is called before any of them is used.
func Share(trackers []*Tracker) {
	all := new([numSources]atomic.Uint32)
	for _, t := range trackers {
		for i := range t.sources {
			t.sources[i].all = &all[i]
		}
	}
}

// goesOn reports whether id follows a refused one.
func goesOn(id, jump uint16) bool {
	step := int16(id - jump)
	return step > 0 && step <= slack
}

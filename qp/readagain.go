package qp

import (
	"slices"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/wire"
)

// This file answers READs again, whole or in parts (IBTA 9.7.5.1.3). Another device of this project asks for all that
// it misses of a READ at once (selective.go), so that parts wait for each other.

// partsMost bounds the parts that wait.
const partsMost = 256

// lossyReads is what a responder has once READs were asked for again, or a CNP has come.
type lossyReads struct {
	until   ib.Instant // responses are spaced
	nsPerKB float64    // of their pace; 0: not known yet
	free    ib.Instant // when those that have left have taken their time
	asked   [2]demand  // by the READs that are counted, and by as many before
	heard   ib.Instant // when the latest READ came, or was repeated
	parts   []psnRange // of READs, to be answered again once what is being answered has left
}

// losesReads returns r.lossy, which it makes at the first call.
func (r *responder) losesReads(now ib.Instant) *lossyReads {
	if r.lossy == nil {
		r.lossy = &lossyReads{heard: now, asked: [2]demand{{since: now}}}
	}
	return r.lossy
}

// readAgain handles the repetition of a READ, whole or in part. It must lie within the original request; what does not
// is dropped. It reports whether responses are to be repeated.
func (r *responder) readAgain(now ib.Instant, p *wire.Packet) bool {
	s := r.res.find(p.PSN)
	mtu := int(r.q.attr.PathMTU)
	if s == nil || !s.holds(p, mtu) {
		return false
	}
	part := psnRange{p.PSN, p.PSN.Add(max(1, (int(p.RETH.Len)+mtu-1)/mtu))}
	l := r.losesReads(now)
	l.lost(now, part, int(s.npsn))
	switch {
	case !s.pending:
		s.repeat(part)
		r.res.idle = false
	case !part.from.Before(s.cursor) && !s.end.Before(part.to):
		return false // pending already
	case !part.to.Before(s.cursor) && !s.end.Before(part.from):
		s.extend(part)
	case len(l.parts) == partsMost:
		return false
	default:
		l.parts = append(l.parts, part)
	}
	return true
}

// nextPart makes another part of a READ pending that was asked for again.
func (r *responder) nextPart(s *resource) {
	if r.lossy == nil {
		return
	}
	for i, part := range r.lossy.parts {
		if s.includes(part.from) {
			s.repeat(part)
			r.lossy.parts = slices.Delete(r.lossy.parts, i, i+1)
			return
		}
	}
}

// forget forgets the parts of a READ, or if s is nil of all.
func (l *lossyReads) forget(s *resource) {
	if l != nil {
		l.parts = slices.DeleteFunc(l.parts, func(part psnRange) bool { return s == nil || s.includes(part.from) })
	}
}

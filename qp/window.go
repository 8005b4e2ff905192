package qp

import (
	"iter"
	"math/bits"

	"github.com/goroce/goroce/ib"
)

// windowSize bounds the PSNs that one QP has in flight. It divides 2^24, so a
// PSN keeps its place in the bitmap when PSNs wrap. The Flow never allows more in
// flight. rdma_rxe stops at 128; the responder needs no state for more.
const windowSize = cwndMax

// window is the set of PSNs in flight: from una, the oldest unacknowledged, up
// to but not including nxt, the next new one. Of these, need marks those that must be sent
// again; gobackn.go decides which. held marks those beyond una that the peer has, or that have
// been answered (selective.go).
type window struct {
	una, nxt ib.PSN
	need     psnSet
	held     psnSet
	sacked   psnSet // PSNs that are not held, and of which the peer has said that it has them (sack.go)
}

func (w *window) start(psn ib.PSN) { *w = window{una: psn, nxt: psn} }

// inFlight is how many PSNs lie between una and nxt.
func (w *window) inFlight() int { return w.nxt.Sub(w.una) }

func (w *window) room() int { return windowSize - w.inFlight() }

// holds reports whether psn is in flight.
func (w *window) holds(psn ib.PSN) bool {
	d := psn.Sub(w.una)
	return d >= 0 && d < w.inFlight()
}

// waiting is how many PSNs were sent and may still be answered.
func (w *window) waiting() int { return w.inFlight() - w.need.n - w.held.n - w.sacked.n }

// mark sets the need of those of n PSNs from psn on that the peer is not known to have, and returns how many were not
// set.
func (w *window) mark(psn ib.PSN, n int) (changed int) {
	for n > 0 {
		run, held := w.held.run(psn, n)
		run, sacked := w.sacked.run(psn, run)
		if !held && !sacked {
			changed += w.need.add(psn, run)
		}
		psn, n = psn.Add(run), n-run
	}
	return changed
}

// unmark clears the need of n PSNs from psn on and returns how many were set.
func (w *window) unmark(psn ib.PSN, n int) int { return w.need.remove(psn, n) }

// firstNeeded returns the oldest PSN that must be sent again.
func (w *window) firstNeeded() (ib.PSN, bool) {
	if w.need.n == 0 {
		return 0, false
	}
	n, first := w.need.run(w.una, windowSize)
	if first {
		n = 0
	}
	return w.una.Add(n), true
}

// psnSet is a set of PSNs of a window. A PSN has its place in it by its value, modulo the size.
type psnSet struct {
	n    int
	bits *[windowSize / 64]uint64 // nil until the first is added
}

// add adds n PSNs from psn on and returns how many were not in the set.
func (s *psnSet) add(psn ib.PSN, n int) int {
	if s.bits == nil {
		s.bits = new([windowSize / 64]uint64)
	}
	changed := 0
	for i, mask := range words(psn, n) {
		changed += bits.OnesCount64(mask &^ s.bits[i])
		s.bits[i] |= mask
	}
	s.n += changed
	return changed
}

// remove removes n PSNs from psn on and returns how many were in the set.
func (s *psnSet) remove(psn ib.PSN, n int) int {
	if s.n == 0 {
		return 0
	}
	changed := 0
	for i, mask := range words(psn, n) {
		changed += bits.OnesCount64(mask & s.bits[i])
		s.bits[i] &^= mask
	}
	s.n -= changed
	return changed
}

// run returns how many of n PSNs from psn on are like the first of them: all in the set, or all not. in says which.
func (s *psnSet) run(psn ib.PSN, n int) (length int, in bool) {
	if s.n == 0 || n == 0 {
		return n, false
	}
	at := int(psn) % windowSize
	in = s.bits[at/64]>>(at%64)&1 != 0
	for i, mask := range words(psn, n) {
		other := s.bits[i] & mask
		if in {
			other = ^s.bits[i] & mask
		}
		if other != 0 {
			return length + bits.TrailingZeros64(other) - bits.TrailingZeros64(mask), in
		}
		length += bits.OnesCount64(mask)
	}
	return length, in
}

// words iterates over the words of a psnSet that n PSNs from psn on lie in, each with its bits.
func words(psn ib.PSN, n int) iter.Seq2[int, uint64] {
	return func(yield func(int, uint64) bool) {
		for at := int(psn) % windowSize; n > 0; at %= windowSize {
			bit := at % 64
			span := min(64-bit, n)
			if !yield(at/64, (^uint64(0)>>(64-span))<<bit) {
				return
			}
			n -= span
			at += span
		}
	}
}

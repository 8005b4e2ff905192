package qp

import (
	"math/bits"

	"github.com/goroce/goroce/ib"
)

// windowSize bounds the PSNs that one QP has in flight. It divides 2^24, so a
// PSN keeps its place in the bitmap when PSNs wrap. The Flow never allows more in
// flight. rdma_rxe stops at 128; the responder needs no state for more.
const windowSize = cwndMax

// window is the set of PSNs in flight: from una, the oldest unacknowledged, up
// to but not including nxt, the next new one. need marks those that must be sent
// again; gobackn.go decides which.
type window struct {
	una, nxt ib.PSN
	needed   int
	need     *[windowSize / 64]uint64 // nil until the first loss
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

// mark sets the need of n PSNs from psn on and returns how many were not set.
func (w *window) mark(psn ib.PSN, n int) int {
	if w.need == nil {
		w.need = new([windowSize / 64]uint64)
	}
	return w.update(psn, n, func(word, mask uint64) uint64 { return word | mask })
}

// unmark clears the need of n PSNs from psn on and returns how many were set.
func (w *window) unmark(psn ib.PSN, n int) int {
	if w.needed == 0 {
		return 0
	}
	return w.update(psn, n, func(word, mask uint64) uint64 { return word &^ mask })
}

// update applies op to n bits from psn on, a word at a time, and returns how
// many of them changed.
func (w *window) update(psn ib.PSN, n int, op func(word, mask uint64) uint64) int {
	changed := 0
	for i := int(psn) % windowSize; n > 0; i = (i + 1) % windowSize {
		bit := i % 64
		span := min(64-bit, n)
		mask := (^uint64(0) >> (64 - span)) << bit
		word := w.need[i/64]
		next := op(word, mask)
		changed += bits.OnesCount64(word ^ next)
		w.needed += bits.OnesCount64(next) - bits.OnesCount64(word)
		w.need[i/64] = next
		n -= span
		i += span - 1
	}
	return changed
}

// firstNeeded returns the oldest PSN that must be sent again.
func (w *window) firstNeeded() (ib.PSN, bool) {
	if w.needed == 0 {
		return 0, false
	}
	base := int(w.una) % windowSize
	for k := 0; k <= len(w.need); k++ {
		i := (base/64 + k) % len(w.need)
		word := w.need[i]
		switch k {
		case 0: // bits below una's belong to the far end of the window
			word &= ^uint64(0) << (base % 64)
		case len(w.need):
			word &= 1<<(base%64) - 1
		}
		if word != 0 {
			at := i*64 + bits.TrailingZeros64(word)
			return w.una.Add((at - base + windowSize) % windowSize), true
		}
	}
	return 0, false
}

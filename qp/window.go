package qp

import "github.com/goroce/goroce/ib"

// windowSize bounds the PSNs that one QP has in flight. The Flow never allows more in
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
	return w.need.runs[0].from, true
}

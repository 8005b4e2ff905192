package qp

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/goroce/goroce/ib"
)

// windowModel models a window as a set of PSNs.
type windowModel struct {
	una, nxt ib.PSN
	need     map[ib.PSN]bool
}

func (m *windowModel) set(psn ib.PSN, n int, on bool) (changed int) {
	for range n {
		if m.need[psn] != on {
			changed++
		}
		if on {
			m.need[psn] = true
		} else {
			delete(m.need, psn)
		}
		psn = psn.Add(1)
	}
	return changed
}

func (m *windowModel) first() (ib.PSN, bool) {
	for psn := m.una; psn.Before(m.nxt); psn = psn.Add(1) {
		if m.need[psn] {
			return psn, true
		}
	}
	return 0, false
}

// TestWindowIsASet drives a window and a set with the same operations, around the
// wrap of the PSN and of the bitmap.
func TestWindowIsASet(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		start := rapid.SampledFrom([]ib.PSN{0, 1, 63, 64, 2047, 2048, 1 << 23, ib.PSNMask - 70, ib.PSNMask}).Draw(t,
			"start")
		var w window
		w.start(start)
		m := &windowModel{una: start, nxt: start, need: map[ib.PSN]bool{}}
		// part draws a random range within [una, nxt).
		part := func(name string) (ib.PSN, int) {
			off := rapid.IntRange(0, w.inFlight()).Draw(t, name+" from")
			return w.una.Add(off), rapid.IntRange(0, w.inFlight()-off).Draw(t, name+" length")
		}
		t.Repeat(map[string]func(*rapid.T){
			"send": func(t *rapid.T) {
				n := rapid.IntRange(0, w.room()).Draw(t, "n")
				w.nxt, m.nxt = w.nxt.Add(n), m.nxt.Add(n)
			},
			"acknowledge": func(t *rapid.T) {
				n := rapid.IntRange(0, w.inFlight()).Draw(t, "n")
				if got, want := w.unmark(w.una, n), m.set(m.una, n, false); got != want {
					t.Fatalf("acknowledged %d that were needed, want %d", got, want)
				}
				w.una, m.una = w.una.Add(n), m.una.Add(n)
			},
			"mark": func(t *rapid.T) {
				psn, n := part("mark")
				if got, want := w.mark(psn, n), m.set(psn, n, true); got != want {
					t.Fatalf("mark changed %d, want %d", got, want)
				}
			},
			"unmark": func(t *rapid.T) {
				psn, n := part("unmark")
				if got, want := w.unmark(psn, n), m.set(psn, n, false); got != want {
					t.Fatalf("unmark changed %d, want %d", got, want)
				}
			},
			"": func(t *rapid.T) {
				if w.need.n != len(m.need) {
					t.Fatalf("%d needed, want %d", w.need.n, len(m.need))
				}
				psn, ok := w.firstNeeded()
				wantPSN, wantOK := m.first()
				if psn != wantPSN || ok != wantOK {
					t.Fatalf("first needed is %d %v, want %d %v (una %d, nxt %d)", psn, ok, wantPSN, wantOK, w.una,
						w.nxt)
				}
				if w.inFlight()+w.room() != windowSize || w.holds(w.nxt) || w.holds(w.una.Add(-1)) {
					t.Fatalf("%d in flight, room for %d, want %d together; holds %v: %v, %v: %v, want neither",
						w.inFlight(), w.room(), windowSize, w.nxt, w.holds(w.nxt), w.una.Add(-1),
						w.holds(w.una.Add(-1)))
				}
				if w.holds(w.una) != (w.inFlight() > 0) {
					t.Fatalf("with %d in flight holds una: got %v, want %v", w.inFlight(), w.holds(w.una),
						w.inFlight() > 0)
				}
			},
		})
	})
}

// TestWindowFull marks a full window, starting at every position in the bitmap.
func TestWindowFull(t *testing.T) {
	for _, start := range []ib.PSN{0, 1, 63, 64, 65, 2047, ib.PSNMask, ib.PSNMask - 1000} {
		var w window
		w.start(start)
		w.nxt = w.nxt.Add(windowSize)
		if n := w.mark(w.una, windowSize); n != windowSize || w.need.n != windowSize {
			t.Fatalf("from %d: got %d marked, %d needed, want %d", start, n, w.need.n, windowSize)
		}
		for i := range windowSize {
			psn, ok := w.firstNeeded()
			if !ok || psn != start.Add(i) {
				t.Fatalf("from %d: first needed is %d %v, want %d", start, psn, ok, start.Add(i))
			}
			w.unmark(psn, 1)
		}
		if _, ok := w.firstNeeded(); ok || w.need.n != 0 {
			t.Fatalf("from %d: got %d needed at the end, want 0", start, w.need.n)
		}
	}
}

package slowmem

import (
	"bytes"
	"testing"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/mr"
	"github.com/goroce/goroce/mr/mrtest"
)

// TestForget: placements of a QP that is forgotten, in the queue or behind the current turn, are not
// carried out; those of others are, each with its own data.
func TestForget(t *testing.T) {
	for _, tt := range []struct {
		name   string
		inTurn bool // it is forgotten while the first turn is under way
	}{{"waiting", false}, {"in the middle of a turn", true}} {
		t.Run(tt.name, func(t *testing.T) {
			mem := mrtest.New(2 * turnPlaces * 8)
			w := New(Options{}, true, func() ib.Instant { return 0 }, func([]Answer[*user]) {})
			dead, alive := new(user), new(user)
			forget := func() {}
			r := lateRegion(t, during{mem, func() { forget() }})
			for i := range 2 * turnPlaces { // by turns, so that none are merged
				data := []byte{1, 2, 3, 4, 5, 6, 7, 8}
				w.Place([]*user{dead, alive}[i%2], []mr.Placement{{R: r, Off: uint64(8 * i), Data: data}})
			}
			var gone <-chan struct{}
			forget = func() { forget, gone = func() {}, w.Forget(dead) }
			from := turnPlaces // the first turn is carried out
			if !tt.inTurn {
				forget()
				from = 0
			}
			if open := !isClosed(gone); !tt.inTurn && open {
				t.Error("there is no turn to wait for")
			}
			if !w.Turn(nil) || !isClosed(gone) {
				t.Error("the turn has ended, but the placements are not gone")
			}
			w.Place(alive, []mr.Placement{{R: r, Off: 0, Data: []byte{9}}})
			for w.Turn(nil) {
			}
			for i := range 2 * turnPlaces {
				got := make([]byte, 8)
				if err := mem.ReadAt(got, uint64(8*i)); err != nil {
					t.Fatal(err)
				}
				if want := i%2 == 1 || i < from; i > 0 && (got[7] == 8) != want {
					t.Errorf("placement %d: % x, written %v, want %v", i, got, !want, want)
				}
			}
			w.Close()
		})
	}
}

// TestForgetHeld: placements of a QP that is forgotten are held no longer, and hold up nobody.
func TestForgetHeld(t *testing.T) {
	const holder = 1
	for _, begun := range []bool{false, true} {
		h := newHolding(t, memorySize)
		dead, alive := new(user), new(user)
		data := bytes.Repeat([]byte{1}, leastHeld)
		if begun { // the turn below carries out these, and leaves the placement of dead
			for range turnPlaces {
				h.Hold(holder, alive, h.write(0, 0, data))
			}
		}
		h.Hold(holder, dead, h.write(1, 1<<14, data))
		if begun && !h.Turn(holder) || !h.Holds(holder) {
			t.Fatal("nothing is held")
		}
		h.Forget(dead)
		if h.Holds(holder) {
			t.Error("a placement that was forgotten is still held")
		}
		h.Place(alive, h.write(2, 1<<15, data))
		if !h.Turn(nil) || h.mem.B[1<<15] != 1 || h.mem.B[1<<14] != 0 {
			t.Error("another placement is not carried out, or the one that was forgotten is")
		}
		if !h.Hold(2, alive, h.write(3, 0, data)) || !h.Turn(2) {
			t.Error("after Forget another holder cannot hold placements")
		}
	}
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// TestDrained: Drained waits for the placements that were queued before the call, and for no others. It ends when they
// are forgotten, or the worker is closed.
func TestDrained(t *testing.T) {
	for _, tt := range []struct {
		name  string
		ends  func(w *Worker[*user], q *user)
		turns int // before it is drained
	}{
		{"carried out", func(*Worker[*user], *user) {}, 2},
		{"forgotten", func(w *Worker[*user], q *user) { w.Forget(q) }, 0},
		{"closed", func(w *Worker[*user], _ *user) { w.Close() }, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := New(Options{}, true, func() ib.Instant { return 0 }, func([]Answer[*user]) {})
			defer w.Close()
			q, r := new(user), lateRegion(t, mrtest.New(1<<10))
			if !isClosed(w.Drained()) {
				t.Error("there is nothing to wait for")
			}
			for i := range turnPlaces + 1 { // two turns, as they do not lie behind each other
				w.Place(q, []mr.Placement{{R: r, Off: uint64(16 - 8*(i%2)), Data: []byte{1}}})
			}
			drained := w.Drained()
			if isClosed(drained) {
				t.Error("drained before the first turn")
			}
			tt.ends(w, q)
			for i := range tt.turns {
				if isClosed(drained) {
					t.Errorf("drained after %d turns, want %d", i, tt.turns)
				}
				w.Turn(nil)
				w.Place(q, []mr.Placement{{R: r, Off: 64, Data: []byte{2}}})
			}
			if !isClosed(drained) {
				t.Error("it is not drained")
			}
		})
	}
}

// TestDrainedInTurn: placements that the current turn carries out are waited for, though the worker is closed.
func TestDrainedInTurn(t *testing.T) {
	var w *Worker[*user]
	var drained [2]<-chan struct{}
	r := lateRegion(t, during{mrtest.New(64), func() {
		drained[0] = w.Drained()
		w.Close()
		drained[1] = w.Drained()
		for i, c := range drained {
			if isClosed(c) {
				t.Errorf("%d: drained in the turn", i)
			}
		}
	}})
	w = New(Options{}, true, func() ib.Instant { return 0 }, func([]Answer[*user]) {})
	w.Place(new(user), []mr.Placement{{R: r, Data: []byte{1}}})
	w.Turn(nil)
	for i, c := range drained {
		if !isClosed(c) {
			t.Errorf("%d: not drained after the turn", i)
		}
	}
}

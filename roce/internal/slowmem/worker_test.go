package slowmem

import (
	"testing"
	"time"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/mr"
	"github.com/goroce/goroce/mr/mrtest"
)

// during is memory whose writes call a function first.
type during struct {
	*mrtest.Memory
	write func()
}

func (d during) WriteAt(p []byte, off uint64) error {
	d.write()
	return d.Memory.WriteAt(p, off)
}

// TestManualDone: a worker without a goroutine is done when it is closed and the turn that is under
// way has ended.
func TestManualDone(t *testing.T) {
	w := New(Options{}, true, func() ib.Instant { return 0 }, func([]Answer[*user]) {})
	isDone := func() bool {
		select {
		case <-w.Done():
			return true
		default:
			return false
		}
	}
	touched := false
	r := lateRegion(t, during{mrtest.New(8), func() {
		touched = true
		if isDone() {
			t.Error("an open worker is done")
		}
		w.Close()
		if isDone() {
			t.Error("a closed worker is done in the middle of a turn")
		}
	}})
	w.Place(new(user), []mr.Placement{{R: r, Data: make([]byte, 8)}})
	if !w.Turn(nil) || !touched || !isDone() {
		t.Errorf("after the turn: memory touched: %v, done: %v", touched, isDone())
	}
	w.Close()
	idle := New(Options{}, true, func() ib.Instant { return 0 }, func([]Answer[*user]) {})
	idle.Close()
	<-idle.Done()
}

// TestStuckByLooks: a turn is stuck when the watch has found it under way often enough, however long the process stood
// still in between, and is reported once.
func TestStuckByLooks(t *testing.T) {
	reports := 0
	var w *Worker[*user]
	r := lateRegion(t, during{mrtest.New(8), func() {
		for look := range 3 * looks {
			w.look()
			if want := min(look/looks, 1); reports != want {
				t.Errorf("after look %d of one turn: %d reports, want %d", look+1, reports, want)
			}
		}
	}})
	o := Options{OnStuck: func() { reports++ }, StuckAfter: time.Hour}
	w = New(o, true, func() ib.Instant { return 0 }, func([]Answer[*user]) {})
	defer w.Close()
	for range 2 {
		reports = 0
		w.Place(new(user), []mr.Placement{{R: r, Data: make([]byte, 8)}})
		w.Turn(nil)
		w.look() // between turns
	}
}

package slowmem

import (
	"testing"

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

package slowmem

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
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
		t.Errorf("after the turn: memory touched: %v, done: %v, want both", touched, isDone())
	}
	w.Close()
	idle := New(Options{}, true, func() ib.Instant { return 0 }, func([]Answer[*user]) {})
	idle.Close()
	<-idle.Done()
}

// TestStuckByLooks: a turn is stuck when the watch has found its thread in one wait often enough, however long the
// process stood still in between, and is reported once. A thread that runs, or waits anew, is slow.
func TestStuckByLooks(t *testing.T) {
	const thread = 7
	tests := []struct {
		name  string
		waits func(look int) (times uint64, waits bool)
		stuck bool
	}{
		{"by time", nil, true},
		{"waits for one thing", func(int) (uint64, bool) { return 5, true }, true},
		{"waits for a processor", func(int) (uint64, bool) { return 5, false }, false},
		{"pages come slowly", func(look int) (uint64, bool) { return uint64(look / looks), true }, false},
		{"runs once", func(look int) (uint64, bool) { return 5, look%(looks+1) != looks }, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var reports, looked atomic.Int32
				o := Options{OnStuck: func(of int) {
					if of != thread {
						t.Errorf("thread %d is reported, want %d", of, thread)
					}
					reports.Add(1)
				}, Thread: func() int { return thread }}
				if tt.waits != nil {
					o.Waits = func(of int) (uint64, bool) {
						return tt.waits(int(looked.Add(1)) - 1)
					}
				}
				r := lateRegion(t, during{mrtest.New(8), func() {
					reports.Store(0)
					looked.Store(0)
					time.Sleep(33 * time.Second)
				}})
				w := New(o, true, func() ib.Instant { return 0 }, func([]Answer[*user]) {})
				defer w.Close()
				for range 2 {
					w.Place(new(user), []mr.Placement{{R: r, Data: make([]byte, 8)}})
					w.Turn(nil)
					if n := reports.Load(); (n == 1) != tt.stuck || n > 1 {
						t.Errorf("%d reports of a turn, want stuck %v", n, tt.stuck)
					}
					time.Sleep(10 * time.Second) // between turns
				}
			})
		})
	}
}

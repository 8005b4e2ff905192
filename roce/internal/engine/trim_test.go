package engine

import (
	"slices"
	"testing"

	"github.com/goroce/goroce/ib/driver"
	"github.com/goroce/goroce/roce/link"
)

// TestTrim: buffers that a burst has needed are given back when nothing has needed them for some time, and not before.
func TestTrim(t *testing.T) {
	s := &Shard{engine: &Engine{caps: link.Caps{RunBytes: 64}}}
	s.tx.init(s)
	burst := func(runs int) {
		for range runs {
			s.tx.begin(&link.Run{}, 64)
		}
		s.tx.n = 0 // the link has taken them
	}
	held := func() int {
		return len(slices.DeleteFunc(slices.Clone(s.tx.buffers), func(b []byte) bool { return b == nil }))
	}
	if burst(trimTo); s.tx.room.at != driver.Never {
		t.Errorf("%d buffers are to be given back at %v, want never", trimTo, s.tx.room.at)
	}
	burst(100)
	for _, step := range []struct {
		name  string
		after int // in trimAfter, since the step before
		burst int // before it
		want  int
	}{
		{"at once", 0, 0, 100}, {"after the burst", 1, 0, 100}, {"after a smaller one", 1, 30, 30},
		{"after none", 1, 0, trimTo}, {"later", 1, 1, trimTo},
	} {
		burst(step.burst)
		for range step.after {
			s.now += trimAfter
			s.tx.trim(s.now)
		}
		if got := held(); got != step.want {
			t.Errorf("%s: %d buffers, want %d", step.name, got, step.want)
		}
	}
	if s.tx.room.at != driver.Never {
		t.Errorf("in the end, buffers are to be given back at %v, want never", s.tx.room.at)
	}
}

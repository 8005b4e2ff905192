package engine

import (
	"testing"
	"time"

	"github.com/goroce/goroce/ib"
)

// TestSpinner: the budget follows gaps that are shorter than the limit, and shrinks when gaps
// are longer.
func TestSpinner(t *testing.T) {
	const us = ib.Instant(time.Microsecond)
	for _, tt := range []struct {
		name string
		most time.Duration
		gaps []ib.Instant
		want ib.Instant
	}{
		{"new", 200 * time.Microsecond, nil, 20 * us},
		{"short gaps change nothing", 200 * time.Microsecond, []ib.Instant{5 * us, 9 * us, 10 * us}, 20 * us},
		{"a gap that it slept through", 200 * time.Microsecond, []ib.Instant{70 * us}, 140 * us},
		{"no more than the limit", 200 * time.Microsecond, []ib.Instant{150 * us}, 200 * us},
		{"a gap too long to spin", 200 * time.Microsecond, []ib.Instant{150 * us, 5000 * us}, 100 * us},
		{"four such gaps", 200 * time.Microsecond, []ib.Instant{150 * us, 5000 * us, 5000 * us, 5000 * us, 5000 * us},
			20 * us},
		{"a limit below the least", 5 * time.Microsecond, []ib.Instant{4 * us, 300 * us}, 5 * us},
		{"never", 0, []ib.Instant{1 * us, 300 * us}, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var s spinner
			s.init(tt.most)
			var now ib.Instant
			for _, gap := range tt.gaps {
				s.idle(now)
				now += gap
				s.busy(now)
			}
			if s.budget != tt.want {
				t.Errorf("budget %v, want %v", time.Duration(s.budget), time.Duration(tt.want))
			}
			if on := s.idle(now); on != (tt.want > 0) {
				t.Errorf("when the idle time begins: got %v of idle, want %v", on, tt.want > 0)
			}
			if on := s.idle(now + max(tt.want-1, 0)); on != (tt.want > 0) {
				t.Errorf("just before the budget ends: got %v of idle, want %v", on, tt.want > 0)
			}
			if s.idle(now + tt.want) {
				t.Error("idle returns true when the budget has ended")
			}
		})
	}
}

package qp

import "testing"

// TestReduction: the window is restored if all that was sent again since it became smaller has arrived twice.
func TestReduction(t *testing.T) {
	const rtt = 50_000
	for _, c := range []struct {
		name string
		do   func(r *reduction) float64
		want float64
	}{
		{"all late", func(r *reduction) float64 { return r.late(2*rtt, 3, rtt) }, 100},
		{"all late, one after another", func(r *reduction) float64 {
			return r.late(2*rtt, 1, rtt) + r.late(2*rtt, 2, rtt)
		}, 100},
		{"undone once", func(r *reduction) float64 { return r.late(2*rtt, 3, rtt) + r.late(2*rtt, 3, rtt) }, 100},
		{"one lost", func(r *reduction) float64 { return r.late(2*rtt, 2, rtt) }, 0},
		{"before it", func(r *reduction) float64 { return r.late(rtt/2, 3, rtt) }, 0},
		{"another one soon after", func(r *reduction) float64 {
			r.begin(2*rtt, 70, 1, rtt)
			r.lost++
			return r.late(3*rtt, 4, rtt)
		}, 100},
		{"another one long after", func(r *reduction) float64 {
			r.begin(20*rtt, 70, 1, rtt)
			return r.late(22*rtt, 1, rtt)
		}, 70},
		{"packets that were not sent again arrive twice, too", func(r *reduction) float64 {
			r.repeated = rtt
			return r.late(2*rtt, 3, rtt)
		}, 0},
	} {
		var r reduction
		r.begin(1, 100, 3, rtt)
		r.resent = 3
		if got := c.do(&r); got != c.want {
			t.Errorf("%s: got the window %v restored, want %v", c.name, got, c.want)
		}
	}
}

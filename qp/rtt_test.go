package qp

import (
	"testing"

	"github.com/goroce/goroce/ib"
)

// TestRTTEstimate checks that the estimate follows the path slowly and never becomes 0
// (unknown) again.
func TestRTTEstimate(t *testing.T) {
	var e rttEstimate
	if e.overdue() != rttUnknown || e.flight() != rttUnknown {
		t.Errorf("before the first sample: got %d and %d ns, want %d", e.overdue(), e.flight(), rttUnknown)
	}
	for _, c := range []struct{ sample, least, most int64 }{
		{50_000, 50_000, 50_000}, {5_000_000, 4_900_000, 5_000_000}, {0, 1, 1000},
	} {
		for range 100 {
			e.add(c.sample)
		}
		if e.mean < c.least || e.mean > c.most {
			t.Errorf("after many samples of %d: got %d ns, want %d to %d", c.sample, e.mean, c.least, c.most)
		}
		if e.overdue() < 2*e.mean || e.overdue() < probeLeast {
			t.Errorf("a wait of %d ns with round trips of %d, want at least %d and %d", e.overdue(), e.mean, 2*e.mean,
				probeLeast)
		}
	}
}

// TestRTTDeviation checks that overdue covers the slow answers of a peer whose answers vary,
// and gets short again once they are steady.
func TestRTTDeviation(t *testing.T) {
	const quick, slow = 100_000, 3_000_000
	var e rttEstimate
	for i := range 400 {
		if sample := []int64{quick, quick, quick, slow}[i%4]; i < 40 || sample < e.overdue() {
			e.add(sample)
			continue
		}
		t.Fatalf("sample %d: after %d ns a probe, and the answer takes %d", i, e.overdue(), slow)
	}
	for range 100 {
		e.add(quick)
	}
	if got := e.overdue(); got != probeLeast {
		t.Errorf("%d ns to a probe of a steady peer, want %d", got, probeLeast)
	}
}

// TestRTTOfMany checks that the estimate of a destination with many QPs remembers a slow answer for
// as many round trips as with one QP, although there are many samples in each.
func TestRTTOfMany(t *testing.T) {
	const quick, slow, each = 1_000_000, 3_000_000, 100 // one sample in a hundred is slow
	var e rttEstimate
	now := ib.Instant(0)
	for i := range 100 * each {
		sample := int64(quick)
		if i%each == 0 {
			sample = slow
		}
		now += quick / each
		e.begin(now)
		e.add(sample)
		if d := e.deviation; i > 50*each && d < quick/100 {
			t.Fatalf("sample %d: a deviation of %d ns, want at least %d: the slow answers are forgotten", i, d,
				quick/100)
		}
	}
	if e.mean < quick || e.mean > quick+quick/10 {
		t.Errorf("got %d ns on the average, want %d to %d", e.mean, quick, quick+quick/10)
	}
}

package perf

import (
	"slices"

	"github.com/goroce/goroce/tests/svg"
)

// Spread is the median and the range of some figures.
type Spread = svg.Spread

// spread returns the spread of figures, of which there must be at least one.
func spread(figures []float64) Spread {
	s := slices.Sorted(slices.Values(figures))
	n := len(s)
	return Spread{Median: (s[(n-1)/2] + s[n/2]) / 2, Min: s[0], Max: s[n-1]}
}

// Verdict is the result of comparing a row with a bar.
type Verdict struct {
	Bar
	Spread      // of the ratios or differences within the rounds, or of the figures themselves
	OK     bool `json:"ok"` // the median reaches the bar
}

// judge compares the samples of a row with those of the row that the bar refers to. Only rounds in which both were
// measured count; if there are none, it returns false.
func judge(bar Bar, row, of []*Sample) (Verdict, bool) {
	var figures []float64
	for i, s := range row {
		switch {
		case s == nil:
		case bar.Of == "":
			figures = append(figures, s.Value)
		case i >= len(of) || of[i] == nil || of[i].Value <= 0:
		case bar.Over:
			figures = append(figures, s.Value-of[i].Value)
		default:
			figures = append(figures, s.Value/of[i].Value)
		}
	}
	if len(figures) == 0 {
		return Verdict{}, false
	}
	v := Verdict{Bar: bar, Spread: spread(figures)}
	if v.OK = v.Median >= bar.Bound; bar.Most {
		v.OK = v.Median <= bar.Bound
	}
	return v, true
}

// summary returns the spread of a function of the samples; false if there are none.
func summary(samples []*Sample, of func(*Sample) float64) (Spread, bool) {
	var figures []float64
	for _, s := range samples {
		if s != nil {
			figures = append(figures, of(s))
		}
	}
	if len(figures) == 0 {
		return Spread{}, false
	}
	return spread(figures), true
}

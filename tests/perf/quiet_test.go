package perf

import (
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// scripted returns a plan of rows that have one figure after the other; the last one lasts. took counts measurements.
func scripted(id WireID, took map[string]int, figures map[string][]float64) plan {
	var list []Row
	for _, name := range []string{bareLoop, write64K} { // in the order of the table
		values, ok := figures[name]
		if !ok {
			continue
		}
		key := fmt.Sprint(id.Kind, " ", name)
		measure := func(context.Context, *wire, *Options) (Result, error) {
			v := values[min(took[key], len(values)-1)]
			took[key]++
			time.Sleep(time.Second)
			if v == 0 {
				return Result{}, errors.New("broken")
			}
			return Result{Seconds: 1, Bytes: v * 1e9 / 8}, nil
		}
		list = append(list, Row{Name: name, Unit: gbps, Measure: measure})
	}
	return plan{id, list, func(context.Context) (*wire, error) { return &wire{WireID: id, close: func() {}}, nil }}
}

// TestQuietRounds: only rounds whose bare loop is near the best count, and others are taken in their place.
func TestQuietRounds(t *testing.T) {
	for _, c := range []struct {
		name          string
		bare          []float64
		rounds        int
		dropped       int
		write, losses []float64 // figures that are left, of the bare loop's wire and of one without such a row
		took          int       // measurements of write, each of which takes time
	}{
		{"quiet", []float64{30, 29, 26}, 3, 0, []float64{1, 2, 3}, []float64{1, 2, 3}, 3},
		{"busy in the middle", []float64{30, 25, 28, 29}, 3, 1, []float64{1, 2, 3}, []float64{1, 2, 3}, 3},
		{"busy at first", []float64{20, 21, 30, 30}, 3, 2, []float64{3, 4, 5}, []float64{3, 4, 5}, 5},
		{"busy but once", []float64{20, 40, 20}, 3, 3*attempts - 1, []float64{2}, []float64{2}, 2},
		{"broken once", []float64{30, 0, 30}, 3, 1, []float64{1, 3, 4}, []float64{1, 3, 4}, 4},
		{"broken", []float64{0}, 3, 0, []float64{1, 2, 3}, []float64{1, 2, 3}, 3},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				took := map[string]int{}
				counting := slices.Collect(func(yield func(float64) bool) {
					for v := 1.0; v < 100 && yield(v); v++ {
					}
				})
				o := &Options{Rounds: c.rounds, Progress: io.Discard}
				rep, _ := o.run(t.Context(), []plan{
					scripted(WireID{Kind: veth}, took, map[string][]float64{bareLoop: c.bare, write64K: counting}),
					scripted(WireID{Kind: bridge}, took, map[string][]float64{write64K: counting}),
				})
				for i, want := range [][]float64{c.write, c.losses} {
					w := rep.Wires[i]
					var got []float64
					for _, s := range w.row(write64K).Samples {
						got = append(got, s.Value)
					}
					if !slices.Equal(got, want) || w.Rounds != len(want) || w.Dropped != c.dropped {
						t.Errorf("%v: %v of %d rounds and %d dropped, want %v and %d", w.Kind, got, w.Rounds,
							w.Dropped, want, c.dropped)
					}
				}
				if n := took["veth "+write64K]; n != c.took {
					t.Errorf("measured %d times, want %d: a busy machine ends a round at once", n, c.took)
				}
			})
		})
	}
}

// TestLimit: a run that takes too long ends, with what it has.
func TestLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeoutCause(t.Context(), 2500*time.Millisecond, errLimit)
		defer cancel()
		o := &Options{Rounds: 5, Progress: io.Discard}
		p := scripted(WireID{Kind: veth}, map[string]int{}, map[string][]float64{write64K: {1}})
		rep, err := o.run(ctx, []plan{p})
		if err != nil || !rep.Limited || rep.Wires[0].Rounds != 3 {
			t.Fatalf("%v: %+v, want three rounds and no error", err, rep)
		}
	})
}

// TestEstimate: the command that takes all figures fits into the time that it has by default.
func TestEstimate(t *testing.T) {
	o := Options{Rounds: 5, Duration: 500 * time.Millisecond, MTUs: []int{1500, 9000}, VM: true}
	if got := o.estimate(o.plans()); got < 5*time.Minute || got > 15*time.Minute {
		t.Errorf("five rounds of everything take %v, want 5 to 15 minutes", got)
	}
	var said strings.Builder
	o = Options{Rounds: 2, Limit: time.Minute, MTUs: []int{1500}, Progress: &said}
	o.Rows = regexp.MustCompile("^nothing")
	if _, err := Run(t.Context(), o); err != nil || !strings.Contains(said.String(), "after 1m0s at most") {
		t.Errorf("said %q (%v), want how long it takes", &said, err)
	}
}

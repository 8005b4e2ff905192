package perf

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// What else runs on the machine takes time from the rows. The bare loop shows it, for nothing of goroce is in it:
// rounds in which it is slow do not count, and further ones are taken in their place.

// quiet is the share of the best bare loop of a run that the bare loop of a round must reach.
const quiet = 0.85

// attempts is how many rounds are begun at most for each one that is asked for. Those on a busy machine are short.
const attempts = 40

// lull is the pause after a round in which no wire found the machine quiet.
const lull = 2 * time.Second

// errLimit is the cause of the end of a run that took as long as it may.
var errLimit = errors.New("the time limit is reached")

// rounds measures until each wire has the rounds asked for, or there have been too many attempts, or the context ends.
func (o *Options) rounds(ctx context.Context, wires []*wire, rep *Report) (failed []error) {
	for round := range attempts * o.Rounds {
		began := time.Now()
		measured := false
		for i, w := range wires {
			if r := rep.Wires[i]; w != nil && r.count() < o.Rounds {
				failed = append(failed, o.round(ctx, w, r, round)...)
				measured = measured || r.counts(round)
			}
		}
		short := func(r *WireReport) bool { return r.count() < o.Rounds }
		if ctx.Err() != nil || !slices.ContainsFunc(rep.Wires, short) {
			break
		}
		if !measured {
			pause(ctx, lull)
		} else if round == 0 {
			took := time.Since(began)
			fmt.Fprintf(o.Progress, "The first round took %v: %d more take about %v, longer if the machine is busy.\n",
				took.Round(time.Second), o.Rounds-1, (took * time.Duration(o.Rounds-1)).Round(time.Second))
		}
	}
	return failed
}

// round measures the rows of a wire once, unless the bare loop shows that the machine is busy.
func (o *Options) round(ctx context.Context, w *wire, r *WireReport, round int) (failed []error) {
	r.begun[round] = true
	for _, row := range r.Rows {
		if s := r.yardstick.sample(round); s != nil && !r.counts(round) {
			if r.row(bareLoop) == r.yardstick { // others say nothing of their own
				fmt.Fprintf(o.Progress, "round %d, %v: dropped, for the best bare loop had %.2f Gb/s\n", round+1,
					w.WireID, r.best())
			}
			break
		}
		if ctx.Err() != nil || row.Skipped != "" {
			continue
		}
		if err := o.take(ctx, w, row, round); err != nil && ctx.Err() == nil {
			failed = append(failed, err)
		}
	}
	return failed
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// sample returns the sample of a round; nil if there is none, or no row.
func (r *RowReport) sample(round int) *Sample {
	if r == nil || round >= len(r.Samples) {
		return nil
	}
	return r.Samples[round]
}

// best returns the best figure of the bare loop, 0 if it was never measured.
func (w *WireReport) best() (best float64) {
	for round := range w.begun {
		if s := w.yardstick.sample(round); s != nil {
			best = max(best, s.Value)
		}
	}
	return best
}

// counts tells whether a round was measured while the machine was quiet, as far as is known by now.
func (w *WireReport) counts(round int) bool {
	best := w.best()
	if best == 0 || !w.begun[round] {
		return w.begun[round]
	}
	s := w.yardstick.sample(round)
	return s != nil && s.Value >= quiet*best
}

// count returns how many rounds count.
func (w *WireReport) count() (n int) {
	for round := range w.begun {
		if w.counts(round) {
			n++
		}
	}
	return n
}

// settle removes the rounds that do not count from all rows.
func (rep *Report) settle() {
	kept := make([][]bool, len(rep.Wires))
	for i, w := range rep.Wires { // of all wires before any row changes: wires share a bare loop
		w.Best = w.best()
		for round, begun := range w.begun {
			kept[i] = append(kept[i], w.counts(round))
			if begun && !kept[i][round] {
				w.Dropped++
			}
		}
		w.Rounds = w.count()
	}
	for i, w := range rep.Wires {
		for _, r := range w.Rows {
			var samples []*Sample
			for round, s := range r.Samples {
				if kept[i][round] {
					samples = append(samples, s)
				}
			}
			r.Samples = samples
		}
	}
}

// setYardsticks gives each wire its bare loop: its own, or that of the first wire that has one.
func (rep *Report) setYardsticks() {
	var first *RowReport
	for _, w := range rep.Wires {
		w.yardstick = w.row(bareLoop)
		if first == nil {
			first = w.yardstick
		}
	}
	for _, w := range rep.Wires {
		if w.yardstick == nil {
			w.yardstick = first
		}
	}
}

// rounds describes the rounds that count: "5 rounds, and 2 dropped: ...".
func (w *WireReport) rounds() string {
	s := fmt.Sprintf("%d rounds", w.Rounds)
	if w.Rounds == 1 {
		s = "1 round"
	}
	switch {
	case w.Best == 0:
		s += ", with no bare loop that tells whether the machine was quiet"
	case w.Dropped > 0:
		s += fmt.Sprintf(", and %d dropped: their bare loop was below %.0f %% of the best, %s Gb/s", w.Dropped,
			100*quiet, figure(w.Best))
	default:
		s += ", none dropped"
	}
	return s
}

// estimate returns about how long the rounds take on a quiet machine.
func (o *Options) estimate(plans []plan) time.Duration {
	var round, once time.Duration
	for _, p := range plans {
		each := o.Duration + warmup(o.Duration) + rowStart
		if p.id.Kind == vm {
			each, once = guestRow, guestBoot
		}
		round += time.Duration(len(p.rows)) * each
	}
	return once + time.Duration(o.Rounds)*round
}

// What is added to the time of a measurement.
const (
	rowStart  = 500 * time.Millisecond // for the processes of both ends, and daemons
	guestRow  = 5 * time.Second        // in all, in an emulated guest
	guestBoot = 40 * time.Second
)

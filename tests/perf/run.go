package perf

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// Options say what to measure.
type Options struct {
	Rounds   int           // that shall count, at least 1
	Duration time.Duration // of a row in a round; iperf3 supports whole seconds only
	// Rows selects rows by name; nil selects all. Rows that bars of selected rows refer to are measured, too.
	Rows *regexp.Regexp
	// Limit ends the run, with what was measured by then; 0 stands for none.
	Limit time.Duration
	MTUs  []int // IP MTUs of the wires; rows that are measured at one MTU use the first
	VM    bool  // also measure in guests of the rxe lab
	// CPUProfile is "" or a pattern of file names: cpu.out results in cpu.veth-1500.RC-WRITE-64-KiB.near.out and so on,
	// for the last round.
	CPUProfile string
	Progress   io.Writer // gets a line for each measurement

	profile func(far bool) (*os.File, error) // opens a profile of the current measurement
}

// plan is a wire with the rows to measure on it.
type plan struct {
	id    WireID
	rows  []Row
	build func(context.Context) (*wire, error)
}

// plans returns the wires for the selected rows.
func (o *Options) plans() []plan {
	var list []plan
	add := func(id WireID, rows []Row, build func(context.Context) (*wire, error)) {
		if rows = o.choose(rows); len(rows) > 0 {
			list = append(list, plan{id, rows, build})
		}
	}
	for i, mtu := range o.MTUs {
		on := rows(everyMTU)
		if i == 0 {
			on = append(on, rows(firstMTU)...)
		}
		id := WireID{Kind: veth, MTU: mtu}
		add(id, on, func(context.Context) (*wire, error) { return newVeth(id) })
	}
	id := WireID{Kind: xdp, MTU: 1500} // native XDP on veth does not support packets larger than a page
	add(id, rows(xdpRows), func(context.Context) (*wire, error) { return newVeth(id) })
	for _, loss := range losses {
		id := WireID{Kind: bridge, MTU: o.MTUs[0], Loss: loss}
		add(id, rows(lossy), func(ctx context.Context) (*wire, error) { return newBridge(ctx, id) })
	}
	id = WireID{Kind: incast, MTU: o.MTUs[0]}
	add(id, rows(incastRows), func(context.Context) (*wire, error) { return newIncast(id) })
	if o.VM {
		g := &guestPair{mtu: o.MTUs[0]}
		for _, loss := range losses {
			id, on := WireID{Kind: vm, MTU: g.mtu, Loss: loss}, guests
			if loss > 0 {
				on = lossyGuests
			}
			add(id, rows(on), func(ctx context.Context) (*wire, error) { return g.wire(ctx, id) })
		}
	}
	return list
}

// choose returns the selected rows, those that their bars refer to, and the bare loop that tells a busy machine.
func (o *Options) choose(rows []Row) []Row {
	if o.Rows == nil {
		return rows
	}
	wanted := map[string]bool{}
	for _, r := range rows {
		if !o.Rows.MatchString(r.Name) {
			continue
		}
		wanted[r.Name], wanted[bareLoop] = true, true
		for _, b := range r.Bars {
			wanted[b.Of] = true
		}
	}
	return slices.DeleteFunc(slices.Clone(rows), func(r Row) bool { return !wanted[r.Name] })
}

// Run measures. After an error in one row it goes on with the others; it returns the report with the errors.
func Run(ctx context.Context, o Options) (*Report, error) {
	if o.Limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, o.Limit, errLimit)
		defer cancel()
	}
	plans := o.plans()
	fmt.Fprintf(o.Progress, "%d rounds take about %v on a quiet machine", o.Rounds,
		o.estimate(plans).Round(time.Second))
	if o.Limit > 0 {
		fmt.Fprintf(o.Progress, "; the run ends after %v at most", o.Limit)
	}
	fmt.Fprintln(o.Progress, ".")
	return o.run(ctx, plans)
}

// run measures the rows of the plans.
func (o *Options) run(ctx context.Context, plans []plan) (*Report, error) {
	wires := make([]*wire, len(plans)) // nil if a wire could not be created
	defer func() {
		for _, w := range wires {
			if w != nil {
				w.close()
			}
		}
	}()
	rep := newReport(o, plans)
	for i, p := range plans {
		var err error
		var skip *SkipError
		if wires[i], err = p.build(ctx); errors.As(err, &skip) {
			for _, r := range rep.Wires[i].Rows {
				r.Skipped = skip.Reason
			}
		} else if err != nil {
			return nil, fmt.Errorf("%v: %w", p.id, err)
		}
	}
	failed := o.rounds(ctx, wires, rep)
	rep.settle()
	rep.judge()
	switch {
	case len(failed) > 0:
		return rep, fmt.Errorf("failed measurements: %d, the first of them: %w", len(failed), failed[0])
	case errors.Is(context.Cause(ctx), errLimit):
		rep.Limited = true
		return rep, nil
	}
	return rep, ctx.Err()
}

// take measures a row once.
func (o *Options) take(ctx context.Context, w *wire, row *RowReport, round int) error {
	what := fmt.Sprintf("%v: %s", w.WireID, row.Name)
	if o.CPUProfile != "" {
		o.profile = func(far bool) (*os.File, error) {
			return os.Create(profileName(o.CPUProfile, w.WireID, row.Name, far))
		}
	}
	var r Result
	var err error
	if w.enter != nil {
		err = w.enter(ctx)
	}
	if err == nil {
		r, err = row.row.Measure(ctx, w, o)
	}
	value := row.row.Unit.of(&r)
	if err == nil && (math.IsNaN(value) || math.IsInf(value, 0)) {
		err = errors.New("nothing came back while it was measured")
	}
	var skip *SkipError
	switch {
	case errors.As(err, &skip):
		row.Skipped = skip.Reason
		fmt.Fprintf(o.Progress, "%s: %v\n", what, skip)
		return nil
	case err != nil && ctx.Err() != nil: // the run was interrupted
		return err
	case err != nil:
		err = fmt.Errorf("%s: %w", what, err)
		row.Errors = append(row.Errors, err.Error())
		fmt.Fprintln(o.Progress, err)
		return err
	}
	s := &Sample{Value: value, Result: r}
	if r.Packets > 0 {
		s.CPUPerPacketNS = r.CPU * 1e9 / r.Packets
	}
	row.Samples[round] = s
	fmt.Fprintf(o.Progress, "round %d, %s: %.2f %s\n", round+1, what, s.Value, row.Unit)
	return nil
}

// profileName returns the file name of a profile for the pattern.
func profileName(pattern string, id WireID, row string, far bool) string {
	ext := filepath.Ext(pattern)
	end := "near"
	if far {
		end = "far"
	}
	slug := strings.Join(strings.FieldsFunc(row, func(r rune) bool { return strings.ContainsRune(" ,()/", r) }), "-")
	return fmt.Sprintf("%s.%s-%d.%s.%s%s", strings.TrimSuffix(pattern, ext), id.Kind, id.MTU, slug, end, ext)
}

// WriteList lists the selected rows with their bars.
func (o *Options) WriteList(out io.Writer) {
	for _, p := range o.plans() {
		fmt.Fprintf(out, "%v\n", p.id)
		for _, r := range p.rows {
			fmt.Fprintf(out, "  %s [%s]\n", r.Name, r.Unit.Name)
			for _, b := range r.Bars {
				fmt.Fprintf(out, "      %s\n", b)
			}
		}
	}
}

// String formats the bar: "at least 0.85 x TCP cubic".
func (b Bar) String() string {
	s := "at least"
	if b.Most {
		s = "at most"
	}
	s = fmt.Sprintf("%s %g", s, b.Bound)
	return s + b.against()
}

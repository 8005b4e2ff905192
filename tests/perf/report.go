package perf

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
)

// Report is the result of a Run.
type Report struct {
	Machine  Machine       `json:"machine"`
	Time     time.Time     `json:"time"`
	Rounds   int           `json:"rounds"` // that were asked for
	Duration time.Duration `json:"duration_ns"`
	Limited  bool          `json:"limited,omitempty"` // the time limit came before the last round
	Wires    []*WireReport `json:"wires"`
}

// WireReport has the rows of a wire.
type WireReport struct {
	WireID
	Rounds  int          `json:"rounds"`              // that count
	Dropped int          `json:"dropped"`             // rounds that do not, for the machine was busy
	Best    float64      `json:"best_bare,omitempty"` // the best bare loop, in Gb/s; 0 if there was none
	Rows    []*RowReport `json:"rows"`

	begun     []bool     // by round
	yardstick *RowReport // the bare loop by which rounds count; nil if all do
}

// RowReport is the result of a row.
type RowReport struct {
	Name     string    `json:"name"`
	Unit     string    `json:"unit"`
	Samples  []*Sample `json:"samples"` // by round that counts; nil if the row could not be measured
	Verdicts []Verdict `json:"verdicts,omitempty"`
	Skipped  string    `json:"skipped,omitempty"` // the reason
	Errors   []string  `json:"errors,omitempty"`

	row Row
}

// Sample is one measurement of a row.
type Sample struct {
	Value          float64 `json:"value"`             // in the row's unit
	CPUPerPacketNS float64 `json:"cpu_per_packet_ns"` // of both ends; 0 if no packets were counted
	Result
}

func newReport(o *Options, plans []plan) *Report {
	rep := &Report{Machine: thisMachine(), Time: time.Now(), Rounds: o.Rounds, Duration: o.Duration}
	for _, p := range plans {
		w := &WireReport{WireID: p.id, begun: make([]bool, attempts*o.Rounds)}
		for _, r := range p.rows {
			w.Rows = append(w.Rows, &RowReport{Name: r.Name, Unit: r.Unit.Name, Samples: make([]*Sample, len(w.begun)),
				row: r})
		}
		rep.Wires = append(rep.Wires, w)
	}
	rep.setYardsticks()
	return rep
}

// judge sets the verdicts.
func (rep *Report) judge() {
	for _, w := range rep.Wires {
		for _, r := range w.Rows {
			for _, bar := range r.row.Bars {
				var of []*Sample
				if other := w.row(bar.Of); other != nil {
					of = other.Samples
				}
				if v, ok := judge(bar, r.Samples, of); ok {
					r.Verdicts = append(r.Verdicts, v)
				}
			}
		}
	}
}

// row returns the row with that name, nil if it was not measured.
func (w *WireReport) row(name string) *RowReport {
	for _, r := range w.Rows {
		if r.Name == name {
			return r
		}
	}
	return nil
}

// WriteJSON writes everything, with all samples.
func (rep *Report) WriteJSON(out io.Writer) error {
	enc := json.NewEncoder(out)
	enc.SetIndent("", "\t")
	return enc.Encode(rep)
}

// WriteTable writes a table for people.
func (rep *Report) WriteTable(out io.Writer) error {
	fmt.Fprintf(out, "%v\nmedian of up to %d rounds of %v (least to most)\n", rep.Machine, rep.Rounds, rep.Duration)
	if rep.Limited {
		fmt.Fprintln(out, "the time limit ended the run before its last round")
	}
	for _, w := range rep.Wires {
		fmt.Fprintf(out, "\n%v: %s\n", w.WireID, w.rounds())
		var lines strings.Builder
		t := tabwriter.NewWriter(&lines, 0, 0, 2, ' ', 0)
		for _, r := range w.Rows {
			r.write(t)
		}
		_ = t.Flush() // a Builder never fails
		for line := range strings.Lines(lines.String()) {
			if _, err := fmt.Fprintln(out, strings.TrimRight(line, " \n")); err != nil {
				return err
			}
		}
	}
	return nil
}

// write writes a line for the row, and another one for each bar but the first.
func (r *RowReport) write(out io.Writer) {
	value, ok := summary(r.Samples, func(s *Sample) float64 { return s.Value })
	switch {
	case r.Skipped != "":
		fmt.Fprintf(out, "  %s\t\t\t\tskipped: %s\n", r.Name, r.Skipped)
		return
	case !ok:
		fmt.Fprintf(out, "  %s\t\t\t\tnot measured\n", r.Name)
		return
	}
	cpu, _ := summary(r.Samples, func(s *Sample) float64 { return s.CPUPerPacketNS })
	fmt.Fprintf(out, "  %s\t%s %s\t(%s to %s)\t%s\t", r.Name, figure(value.Median), r.Unit, figure(value.Min),
		figure(value.Max), perPacket(cpu.Median))
	for i, v := range r.Verdicts {
		if i > 0 {
			fmt.Fprint(out, "\n\t\t\t\t")
		}
		fmt.Fprint(out, v)
	}
	fmt.Fprintln(out)
}

// figure formats a figure with about three digits.
func figure(x float64) string {
	switch {
	case x >= 100:
		return fmt.Sprintf("%.0f", x)
	case x >= 0.1:
		return fmt.Sprintf("%.2f", x)
	}
	return fmt.Sprintf("%.4f", x)
}

// perPacket formats processor time, if there is any.
func perPacket(ns float64) string {
	if ns == 0 {
		return ""
	}
	return fmt.Sprintf("%.0f ns/packet", ns)
}

// String formats the verdict: "0.92 of 0.85 x TCP cubic: ok (0.90 to 0.95)".
func (v Verdict) String() string {
	word := "short"
	if v.OK {
		word = "ok"
	}
	most := ""
	if v.Most {
		most = "at most "
	}
	return fmt.Sprintf("%s of %s%g%s: %s (%s to %s)", figure(v.Median), most, v.Bound, v.against(), word, figure(v.Min),
		figure(v.Max))
}

package perf

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/goroce/goroce/tests/svg"
)

// WritePlots writes the plots for which there are figures into a directory, which
// it makes.
func (rep *Report) WritePlots(dir string) error {
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return err
	}
	var errs []error
	for name, c := range map[string]*svg.Chart{"throughput": rep.throughput(), "latency": rep.latency(),
		"loss": rep.goodput()} {
		if len(c.Lines) == 0 {
			continue
		}
		f, err := os.Create(filepath.Join(dir, name+".svg"))
		if err == nil {
			err = errors.Join(c.Write(f), f.Close())
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// throughput plots payload over message size, with TCP and rdma_rxe for comparison.
func (rep *Report) throughput() *svg.Chart {
	c := rep.chart("RC WRITE throughput over message size", "message", "Gb/s of payload", rep.wires(veth, vm))
	for _, size := range curve {
		c.Ticks = append(c.Ticks, sizeName(size))
	}
	over := func(w *WireReport, name func(int) string) (points []*Spread) {
		for _, size := range curve {
			points = append(points, w.spread(name(size), (*Sample).gbps))
		}
		return points
	}
	wires := rep.wires(veth)
	for _, w := range wires {
		c.Add(svg.Line{Name: fmt.Sprintf("WRITE, MTU %d", w.MTU), Points: over(w, writeName)})
	}
	for _, w := range wires[:min(1, len(wires))] {
		for _, name := range []string{cubic, bbr} {
			c.Add(svg.Line{Name: short(name), Level: w.spread(name, (*Sample).gbps), Dashed: true})
		}
	}
	for _, w := range rep.wires(vm) {
		if w.Loss == 0 {
			c.Add(svg.Line{Name: "WRITE, emulated guests", Points: over(w, writeName)})
			c.Add(svg.Line{Name: "rdma_rxe, same guests", Points: over(w, rxeName), Dashed: true})
		}
	}
	return c
}

// latency plots the half round trip over percentiles.
func (rep *Report) latency() *svg.Chart {
	c := rep.chart("Half round trip of 8 bytes, both sides polling", "percentile", "us", rep.wires(veth))
	for _, q := range quantiles {
		c.Ticks = append(c.Ticks, fmt.Sprintf("%g", q))
	}
	for _, w := range rep.wires(veth) {
		for _, name := range []string{writePing, sendPing, barePings} {
			var points []*Spread
			for i := range quantiles {
				points = append(points, w.spread(name, func(s *Sample) float64 { return s.quantile(i) }))
			}
			c.Add(svg.Line{Name: short(name), Points: points, Dashed: name == barePings})
		}
	}
	return c
}

// goodput plots the throughput of lossy wires.
func (rep *Report) goodput() *svg.Chart {
	c := rep.chart("Goodput over loss of single packets", "packets lost", "Gb/s of payload", rep.wires(bridge, vm))
	for _, loss := range losses {
		c.Ticks = append(c.Ticks, fmt.Sprintf("%g %%", loss))
	}
	for _, l := range []struct{ kind, row, name string }{
		{bridge, write64K, "WRITE 64 KiB"}, {bridge, cubic, "TCP cubic"},
		{vm, write64K, "WRITE 64 KiB, emulated guests"}, {vm, rxeWrite, "rdma_rxe, same guests"},
	} {
		var points []*Spread
		for _, w := range rep.wires(l.kind) {
			points = append(points, w.spread(l.row, (*Sample).gbps))
		}
		c.Add(svg.Line{Name: l.name, Points: points, Dashed: l.row != write64K})
	}
	return c
}

// chart returns a chart without lines of figures that were taken on these wires. Its y axis is logarithmic, because
// emulated guests and short messages are thousands of times slower than the rest.
func (rep *Report) chart(title, xLabel, yLabel string, on []*WireReport) *svg.Chart {
	c := &svg.Chart{Title: title, Subtitle: rep.Machine.short(), XLabel: xLabel, YLabel: yLabel, Log: true}
	if len(on) == 0 {
		return c
	}
	least, most, dropped := on[0].Rounds, 0, 0
	for _, w := range on {
		least, most, dropped = min(least, w.Rounds), max(most, w.Rounds), max(dropped, w.Dropped)
	}
	rounds := fmt.Sprint(most)
	if least < most {
		rounds = fmt.Sprintf("%d to %d", least, most)
	}
	c.Note = fmt.Sprintf("Medians of %s rounds; %d more were dropped, for the machine was busy.", rounds, dropped)
	return c
}

// short returns the first part of a row's name.
func short(name string) string {
	s, _, _ := strings.Cut(name, ",")
	return s
}

// wires returns the wires of some kinds.
func (rep *Report) wires(kinds ...string) []*WireReport {
	var list []*WireReport
	for _, w := range rep.Wires {
		if slices.Contains(kinds, w.Kind) {
			list = append(list, w)
		}
	}
	return list
}

// spread returns the spread of a function of a row's samples; nil if there are none.
func (w *WireReport) spread(row string, of func(*Sample) float64) *Spread {
	r := w.row(row)
	if r == nil {
		return nil
	}
	s, ok := summary(r.Samples, of)
	if !ok {
		return nil
	}
	return &s
}

func (s *Sample) gbps() float64 { return s.Gbps() }

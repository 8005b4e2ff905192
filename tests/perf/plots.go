package perf

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// WritePlots writes the plots for which there are figures into a directory, which
// it makes.
func (rep *Report) WritePlots(dir string) error {
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return err
	}
	var errs []error
	for name, c := range map[string]*chart{"throughput": rep.throughput(), "latency": rep.latency(),
		"loss": rep.goodput()} {
		if len(c.lines) == 0 {
			continue
		}
		f, err := os.Create(filepath.Join(dir, name+".svg"))
		if err == nil {
			err = errors.Join(c.write(f), f.Close())
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// throughput plots payload over message size, with TCP for comparison.
func (rep *Report) throughput() *chart {
	c := &chart{title: "RC WRITE throughput over message size", subtitle: rep.Machine.short(), xLabel: "message",
		yLabel: "Gb/s of payload"}
	for _, size := range curve {
		c.ticks = append(c.ticks, sizeName(size))
	}
	for _, w := range rep.wires(veth) {
		var points []*Spread
		for _, size := range curve {
			points = append(points, w.spread(writeName(size), (*Sample).gbps))
		}
		c.add(line{name: fmt.Sprintf("WRITE, MTU %d", w.MTU), points: points})
	}
	for _, w := range rep.wires(veth)[:min(1, len(rep.wires(veth)))] {
		for _, name := range []string{cubic, bbr} {
			c.add(line{name: short(name), level: w.spread(name, (*Sample).gbps), dashed: true})
		}
	}
	return c
}

// latency plots the half round trip over percentiles.
func (rep *Report) latency() *chart {
	c := &chart{title: "Half round trip of 8 bytes, both sides polling", subtitle: rep.Machine.short(),
		xLabel: "percentile", yLabel: "us", log: true}
	for _, q := range quantiles {
		c.ticks = append(c.ticks, fmt.Sprintf("%g", q))
	}
	for _, w := range rep.wires(veth) {
		for _, name := range []string{writePing, sendPing, barePings} {
			var points []*Spread
			for i := range quantiles {
				points = append(points, w.spread(name, func(s *Sample) float64 { return s.quantile(i) }))
			}
			c.add(line{name: short(name), points: points, dashed: name == barePings})
		}
	}
	return c
}

// goodput plots the throughput of lossy wires.
func (rep *Report) goodput() *chart {
	c := &chart{title: "Goodput over loss of single packets", subtitle: rep.Machine.short(), xLabel: "packets lost",
		yLabel: "Gb/s of payload", log: true}
	for _, loss := range losses {
		c.ticks = append(c.ticks, fmt.Sprintf("%g %%", loss))
	}
	for _, l := range []struct{ kind, row, name string }{
		{bridge, write64K, "WRITE 64 KiB"}, {bridge, cubic, "TCP cubic"},
		{vm, write64K, "WRITE 64 KiB, guests"}, {vm, rxeWrite, "rdma_rxe, guests"},
	} {
		var points []*Spread
		for _, w := range rep.wires(l.kind) {
			points = append(points, w.spread(l.row, (*Sample).gbps))
		}
		c.add(line{name: l.name, points: points, dashed: l.row != write64K})
	}
	return c
}

// add adds a line if it has any points.
func (c *chart) add(l line) {
	if len(l.all()) > 0 {
		c.lines = append(c.lines, l)
	}
}

// short returns the first part of a row's name.
func short(name string) string {
	s, _, _ := strings.Cut(name, ",")
	return s
}

// wires returns the wires of a kind.
func (rep *Report) wires(kind string) []*WireReport {
	var list []*WireReport
	for _, w := range rep.Wires {
		if w.Kind == kind {
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

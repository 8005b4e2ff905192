package qp

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/tests/require"
	"github.com/goroce/goroce/tests/svg"
	"github.com/goroce/goroce/wire"
)

var figuresUpdate = flag.Bool("figures.update", false, "write the plots of docs/congestion.md")

// figureSeeds is how many seeds each point of a plot is from.
const figureSeeds = 5

// TestFigures draws the plots of docs/congestion.md, in virtual time: the same code makes the same bytes, on a
// processor that rounds alike.
func TestFigures(t *testing.T) {
	require.NoRace(t, "millions of packets")
	if runtime.GOARCH != "amd64" {
		t.Skip("skipped: needs amd64, since other processors fuse multiplications and additions")
	}
	for name, draw := range map[string]func(*testing.T) *svg.Chart{
		"congestion-loss": lossFigure, "congestion-window": windowFigure, "congestion-share": shareFigure,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var got strings.Builder
			if err := draw(t).Write(&got); err != nil {
				t.Fatal(err)
			}
			path := filepath.Join("..", "docs", "figures", name+".svg")
			if *figuresUpdate {
				if err := os.WriteFile(path, []byte(got.String()), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if was, err := os.ReadFile(path); err != nil || string(was) != got.String() {
				t.Errorf("%s is not what the code does (%v): go test ./qp -run TestFigures -figures.update", path, err)
			}
		})
	}
}

// measured has what others carry, of what they carry without loss, from docs/performance.md, with 0.1 and 1 % of
// single packets lost: there is a bottleneck in the machine, not in the network.
var measured = []struct {
	name   string
	points []float64
}{
	{"TCP cubic, measured", []float64{0, 1.91 / 4.26, 0.34 / 4.26, 0, 0}},
	{"rdma_rxe, measured", []float64{0, 0.20 / 0.21, 0.0422 / 0.21, 0, 0}},
}

// lossFigure plots goodput over loss.
func lossFigure(t *testing.T) *svg.Chart {
	c := &svg.Chart{Title: "Goodput over loss of single packets, as a part of that without loss",
		Subtitle: "Virtual time: one QP, 64 KiB messages, 16 at a time, 10 Gb/s, a round trip of 50 us.",
		Note:     "Dashed: others, measured on one machine, from docs/performance.md.",
		XLabel:   "packets lost, at random, both ways", YLabel: "part of the goodput without loss"}
	losses := []float64{0.0001, 0.001, 0.01, 0.03, 0.05}
	for _, loss := range losses {
		c.Ticks = append(c.Ticks, fmt.Sprintf("%g %%", loss*100))
	}
	for _, l := range []struct {
		name   string
		op     ib.WROpcode
		change func(*devices)
	}{
		{"WRITE and SEND, SACK", ib.WRWrite, sacks},
		{"READ, any peer", ib.WRRead, nil},
		{"WRITE and SEND, any peer", ib.WRWrite, nil},
	} {
		clean := goodputOf(t, 0, 1, l.op, l.change)
		line := svg.Line{Name: l.name}
		for _, loss := range losses {
			var parts []float64
			for seed := range uint64(figureSeeds) {
				parts = append(parts, goodputOf(t, loss, seed, l.op, l.change)/clean)
			}
			slices.Sort(parts)
			line.Points = append(line.Points, &svg.Spread{Median: parts[figureSeeds/2], Min: parts[0],
				Max: parts[figureSeeds-1]})
		}
		c.Add(line)
	}
	for _, m := range measured {
		line := svg.Line{Name: m.name, Dashed: true, Points: make([]*svg.Spread, len(losses))}
		for i, v := range m.points {
			if v > 0 {
				line.Points[i] = &svg.Spread{Median: v, Min: v, Max: v}
			}
		}
		c.Add(line)
	}
	return c
}

// goodputOf returns the goodput of one QP over a path that loses packets, in messages a nanosecond.
func goodputOf(t *testing.T, loss float64, seed uint64, op ib.WROpcode, change func(*devices)) float64 {
	const n = 300
	net := network{oneWay: 25_000, rate: 1.25, buffer: 10 * ms, drop: loss}
	return n / float64(takesOnce(t, net, seed, op, n, change))
}

// The bottleneck of the other two plots.
const (
	bottleneckRate = 0.0125 // bytes a nanosecond: 100 Mb/s
	bottleneckRTT  = 10 * ms
	messageSize    = 64 << 10
)

// windowFigure plots the congestion window over time at a bottleneck.
func windowFigure(t *testing.T) *svg.Chart {
	c := &svg.Chart{Title: "CUBIC's congestion window at a bottleneck", XMost: 20,
		Subtitle: "Virtual time: one QP, WRITE, 100 Mb/s, a round trip of 10 ms, a queue of 10 ms.",
		Note:     "Marks: what waits for more than 2 ms is marked (ECN); losses: it is not.",
		XLabel:   "seconds", YLabel: "packets of 1,024 bytes"}
	for _, l := range []struct {
		name string
		mark ib.Instant
	}{{"losses", 0}, {"marks", 2 * ms}} {
		x := newSenders(t, 1, network{oneWay: bottleneckRTT / 2, rate: bottleneckRate, buffer: 10 * ms,
			mark: l.mark}, 1)
		windows := x.sample(100*ms, func() float64 { return float64(x.senders[0].CongestionWindow()) })
		x.run(load{op: ib.WRWrite, size: messageSize, depth: 32, n: 20 * 180})
		c.Add(svg.Line{Name: l.name, Path: until(*windows, c.XMost)})
	}
	full := bottleneckRate * float64(bottleneckRTT) / (1024 + packetOverhead)
	c.Add(svg.Line{Name: "what the path holds", Dashed: true,
		Path: []svg.Point{{X: 0, Y: full}, {X: c.XMost, Y: full}}})
	return c
}

// shareFigure plots how two flows share a bottleneck, the second of which begins later.
func shareFigure(t *testing.T) *svg.Chart {
	c := &svg.Chart{Title: "Two flows share a bottleneck", XMost: 30,
		Subtitle: "Virtual time: cubic, a QP each, WRITE, 100 Mb/s, a round trip of 10 ms, a queue of 10 ms.",
		Note:     "The second one begins later.",
		XLabel:   "seconds", YLabel: "Mb/s of payload, in each second"}
	x := newSenders(t, 2, network{oneWay: bottleneckRTT / 2, rate: bottleneckRate, buffer: 10 * ms}, 1)
	l, pairs := load{op: ib.WRWrite, size: messageSize, depth: 32, n: 5 * 180}, x.pairs
	x.pairs = pairs[:1]
	x.run(l)
	alone := pairs[0].done
	x.pairs, pairs[0].done, pairs[0].posted, l.n = pairs, nil, 0, 30*90
	x.run(l)
	for i, done := range [][]ib.Instant{append(alone, pairs[0].done...), pairs[1].done} {
		c.Add(svg.Line{Name: []string{"first", "second"}[i], Path: eachSecond(done, int(c.XMost))})
	}
	full := bottleneckRate * 8e3 * 1024 / (1024 + packetOverhead)
	c.Add(svg.Line{Name: "what the path carries", Dashed: true,
		Path: []svg.Point{{X: 0, Y: full}, {X: c.XMost, Y: full}}})
	return c
}

// eachSecond returns the Mb/s of each second, in its middle, of messages that were complete at these times.
func eachSecond(done []ib.Instant, seconds int) (list []svg.Point) {
	counts := make([]float64, seconds)
	for _, at := range done {
		if i := int(at / (1000 * ms)); i < seconds {
			counts[i] += messageSize * 8 / 1e6
		}
	}
	for i, mbit := range counts {
		list = append(list, svg.Point{X: float64(i) + 0.5, Y: mbit})
	}
	return list
}

// sample returns what get returns at regular times of the run that follows, by seconds.
func (x *devices) sample(every ib.Instant, get func() float64) *[]svg.Point {
	list, next := new([]svg.Point), ib.Instant(0)
	x.passes = func(*host, *wire.Packet) bool {
		for ; next <= x.now; next += every {
			*list = append(*list, svg.Point{X: float64(next) / 1e9, Y: get()})
		}
		return true
	}
	return list
}

// until returns the points up to a time.
func until(list []svg.Point, most float64) []svg.Point {
	return slices.DeleteFunc(list, func(p svg.Point) bool { return p.X > most })
}

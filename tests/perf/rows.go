package perf

import (
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/goroce/goroce/ib"
)

// Row is a figure to measure.
type Row struct {
	Name string
	Unit Unit
	On   places
	Bars []Bar
	// Measure measures the figure once. A *SkipError says why it cannot be measured here.
	Measure measure
}

type measure func(ctx context.Context, w *wire, o *Options) (Result, error)

// places selects the wires that a row is measured on.
type places uint8

const (
	everyMTU    places = iota // veth, at each MTU
	firstMTU                  // veth, at the first one
	lossy                     // bridges that lose packets, at the first MTU
	incastRows                // many namespaces, at the first MTU
	xdpRows                   // veth pairs of their own, at the first MTU: an XDP program changes their offloads
	guests                    // guests of the lab, with -vm
	lossyGuests               // the same guests, with loss
)

// Unit is the unit of a figure. Its value is NaN if nothing was counted.
type Unit struct {
	Name string
	of   func(*Result) float64
}

// Units of rows.
var (
	gbps      = Unit{"Gb/s", (*Result).Gbps}
	mmps      = Unit{"M msg/s", func(r *Result) float64 { return r.Messages / r.Seconds / 1e6 }}
	mpps      = Unit{"M pkt/s", func(r *Result) float64 { return r.Packets / r.Seconds / 1e6 }}
	perSecond = Unit{"1/s", func(r *Result) float64 { return r.Messages / r.Seconds }}
	us        = Unit{"us", func(r *Result) float64 { return r.quantile(0) }}
	bytesEach = Unit{"B/QP", func(r *Result) float64 { return r.PerQP }}
	mib       = Unit{"MiB", func(r *Result) float64 { return r.Daemon }}
	callsEach = Unit{"calls/msg", func(r *Result) float64 { return r.Calls / r.Messages }}
	wakesEach = Unit{"wakes/msg", func(r *Result) float64 { return r.Wakes / r.Messages }}
	cpuPerGB  = Unit{"s/GB", func(r *Result) float64 { return r.CPU / (r.Bytes / 1e9) }}
	cpuShare  = Unit{"% CPU", func(r *Result) float64 { return 100 * r.CPU / r.Seconds }}
)

// Gbps returns the payload in 10^9 bits per second.
func (r *Result) Gbps() float64 { return r.Bytes * 8 / r.Seconds / 1e9 }

// quantile returns latency number i of quantiles in us, NaN if it was not measured.
func (r *Result) quantile(i int) float64 {
	if i >= len(r.Latency) {
		return math.NaN()
	}
	return r.Latency[i]
}

// Bar is what a row should reach: Bound times the figure of another row on the same wire; with Over, that figure plus
// Bound; without another row, Bound itself. It is a minimum, or with Most a maximum.
type Bar struct {
	Bound float64 `json:"bound"`
	Of    string  `json:"of,omitempty"` // "": no other row
	Most  bool    `json:"most,omitempty"`
	Over  bool    `json:"over,omitempty"`
}

func least(bound float64, of string) Bar { return Bar{Bound: bound, Of: of} }
func most(bound float64, of string) Bar  { return Bar{Bound: bound, Of: of, Most: true} }
func over(bound float64, of string) Bar  { return Bar{Bound: bound, Of: of, Most: true, Over: true} }

// against describes what the bound refers to: " x TCP cubic, one stream".
func (b *Bar) against() string {
	switch {
	case b.Of == "":
		return ""
	case b.Over:
		return " more than " + b.Of
	}
	return " x " + b.Of
}

// Names of rows that bars refer to, or that plots show.
const (
	cubic     = "TCP cubic, one stream"
	bbr       = "TCP bbr, one stream"
	bareLoop  = "bare loop, full segments"
	shaped64K = "shaped loop, 64 KiB"
	shaped1M  = "shaped loop, 1 MiB"
	bare40    = "bare loop, 40-byte segments"
	barePings = "bare UDP ping-pong, 40 bytes"
	bareRing  = "bare ring loop (AF_XDP), 1,100 bytes"
	write8    = "RC WRITE 8 B"
	write4K   = "RC WRITE 4 KiB"
	write64K  = "RC WRITE 64 KiB"
	writePing = "RC WRITE 8 B, ping-pong"
	sendPing  = "RC SEND 8 B, ping-pong"
	looped    = "RC WRITE 8 B, ping-pong within a device"
	rxeWrite  = "rdma_rxe RC WRITE 64 KiB (ib_write_bw)"
)

const (
	depth    = 128 // requests in flight of one QP
	manyQPs  = 1000
	idleQPs  = 10000
	daemonQP = 100
	userRecv = 208 << 10 // net.core.rmem_max of most systems
)

// stream is a Job that keeps requests in flight.
func stream(op ib.WROpcode, size int) Job {
	return Job{Kind: "stream", Op: op, Size: size, Depth: depth}
}

// table has all rows except those of the throughput curve and of programs in C (dropin_rows.go).
var table = []Row{
	{Name: bareLoop, Unit: gbps, Measure: pair(Job{Kind: "bare"})}, // the first: it tells whether the machine is quiet
	{Name: cubic, Unit: gbps, Measure: tcp("cubic")},
	{Name: bbr, Unit: gbps, Measure: tcp("bbr")},
	{Name: shaped64K, Unit: gbps, Measure: pair(Job{Kind: "shaped", Size: 64 << 10})},
	{Name: shaped1M, Unit: gbps, Measure: pair(Job{Kind: "shaped", Size: 1 << 20})},
	{Name: "shaped loop, 4 KiB", Unit: gbps, Measure: pair(Job{Kind: "shaped", Size: 4 << 10})},

	{Name: write64K, Unit: gbps, Measure: pair(stream(ib.WRWrite, 64<<10)),
		Bars: []Bar{least(0.85, shaped64K), least(0.6, cubic), least(1.3, bbr)}},
	{Name: "RC WRITE 1 MiB", Unit: gbps, Measure: pair(stream(ib.WRWrite, 1<<20)),
		Bars: []Bar{least(0.85, shaped1M), least(0.7, cubic), least(1.5, bbr)}},
	{Name: write4K, Unit: gbps, Measure: pair(stream(ib.WRWrite, 4<<10)), Bars: []Bar{least(0.5, write64K)}},
	{Name: "RC READ 64 KiB", Unit: gbps, Measure: pair(stream(ib.WRRead, 64<<10)), Bars: []Bar{least(0.7, write64K)}},
	{Name: "RC SEND 64 KiB", Unit: gbps, Measure: pair(stream(ib.WRSend, 64<<10)), Bars: []Bar{least(1.0, write64K)}},
	{Name: "RC WRITE 4 KiB, 1,000 QPs", Unit: gbps, Bars: []Bar{least(0.7, write4K)},
		Measure: pair(Job{Kind: "stream", Op: ib.WRWrite, Size: 4 << 10, Depth: 4, QPs: manyQPs})},
	{Name: "RC WRITE 64 KiB, ordinary user", Unit: gbps, Bars: []Bar{least(0.9, write64K)},
		Measure: pair(Job{Kind: "stream", Op: ib.WRWrite, Size: 64 << 10, Depth: depth, RecvBuffer: userRecv,
			User: true})},
	{Name: "RC WRITE 64 KiB, rawsock", Unit: gbps,
		Measure: pair(Job{Kind: "stream", Op: ib.WRWrite, Size: 64 << 10, Depth: depth, Link: "rawsock"})},

	{Name: bare40, Unit: mmps, Measure: pair(Job{Kind: "bare", Size: 40})},
	{Name: write8, Unit: mmps, Measure: pair(stream(ib.WRWrite, 8)),
		Bars: []Bar{least(0.3, bare40), least(2, "")}},
	{Name: barePings, Unit: us, On: firstMTU, Measure: pair(Job{Kind: "bareping"})},
	{Name: writePing, Unit: us, On: firstMTU, Bars: []Bar{most(1.3, barePings)},
		Measure: pair(Job{Kind: "pingpong", Op: ib.WRWrite, Size: pingSize, Depth: depth})},
	{Name: sendPing, Unit: us, On: firstMTU, Bars: []Bar{most(1.3, barePings)},
		Measure: pair(Job{Kind: "pingpong", Op: ib.WRSend, Size: pingSize, Depth: depth})},
	{Name: "RC WRITE 64 KiB, events", Unit: gbps, Measure: pair(Job{Kind: "stream", Op: ib.WRWrite, Size: 64 << 10,
		Depth: depth, Events: true})},
	{Name: "RC WRITE 64 KiB, daemons, memfd", Unit: gbps, Bars: []Bar{least(0.8, write64K)},
		Measure: pair(Job{Kind: "stream", Op: ib.WRWrite, Size: 64 << 10, Depth: depth, Events: true, Memory: memfd})},
	{Name: "RC WRITE 64 KiB, daemons, process memory", Unit: gbps, Bars: []Bar{least(0.5, write64K)},
		Measure: pair(Job{Kind: "stream", Op: ib.WRWrite, Size: 64 << 10, Depth: depth, Events: true,
			Memory: processMemory})},
	{Name: looped, Unit: us, On: firstMTU, Measure: pair(Job{Kind: "loop", QPs: 2, Depth: depth})},
	{Name: looped + ", of a daemon", Unit: us, On: firstMTU, Bars: []Bar{over(2, looped)},
		Measure: pair(Job{Kind: "loop", QPs: 2, Depth: depth, Memory: memfd})},
	{Name: writePing + ", daemons", Unit: us, On: firstMTU, Bars: []Bar{over(8, writePing)},
		Measure: pair(Job{Kind: "pingpong", Op: ib.WRWrite, Size: pingSize, Depth: depth, Memory: memfd})},
	{Name: "100 idle QPs of a daemon, its memory", Unit: mib, On: firstMTU, Bars: []Bar{most(64, "")},
		Measure: pair(Job{Kind: "idle", QPs: daemonQP, Depth: 1, Memory: memfd})},
	{Name: "100 idle QPs of daemons, CPU of both ends", Unit: cpuShare, On: firstMTU, Bars: []Bar{most(1, "")},
		Measure: pair(Job{Kind: "idle", QPs: daemonQP, Depth: 1, Memory: memfd})},

	{Name: "10,000 idle QPs, memory", Unit: bytesEach, On: firstMTU, Bars: []Bar{most(4096, "")},
		Measure: pair(Job{Kind: "idle", QPs: idleQPs, Depth: 1})},
	{Name: "10,000 idle QPs, CPU of both ends", Unit: cpuShare, On: firstMTU, Bars: []Bar{most(0.1, "")},
		Measure: pair(Job{Kind: "idle", QPs: idleQPs, Depth: 1})},
	{Name: "rdma_cm connections, in a row", Unit: perSecond, On: firstMTU,
		Measure: pair(Job{Kind: "connect", Depth: 1})},
	{Name: "rdma_cm connections, 16 at once", Unit: perSecond, On: firstMTU,
		Measure: pair(Job{Kind: "connect", Depth: 16})},
	{Name: bareRing, Unit: mpps, On: xdpRows, Measure: pair(Job{Kind: "ring", Size: 1100})},
	{Name: "RC WRITE 64 KiB, afxdp", Unit: mpps, On: xdpRows, Bars: []Bar{least(0.8, bareRing)},
		Measure: pair(Job{Kind: "stream", Op: ib.WRWrite, Size: 64 << 10, Depth: depth, Link: "afxdp"})},

	{Name: cubic, Unit: gbps, On: lossy, Measure: tcp("cubic")},
	{Name: write64K, Unit: gbps, On: lossy, Measure: pair(stream(ib.WRWrite, 64<<10))},

	{Name: rxeWrite, Unit: gbps, On: guests, Measure: rxeStream(64 << 10)},
	{Name: write64K, Unit: gbps, On: guests, Measure: guestStream(64 << 10), Bars: []Bar{least(1.5, rxeWrite)}},
	{Name: rxeName(4 << 10), Unit: gbps, On: guests, Measure: rxeStream(4 << 10)},
	{Name: write4K, Unit: gbps, On: guests, Measure: guestStream(4 << 10)},
	{Name: rxeName(16 << 10), Unit: gbps, On: guests, Measure: rxeStream(16 << 10)},
	{Name: writeName(16 << 10), Unit: gbps, On: guests, Measure: guestStream(16 << 10)},
	{Name: rxeWrite, Unit: gbps, On: lossyGuests, Measure: rxeStream(64 << 10)},
	{Name: write64K, Unit: gbps, On: lossyGuests, Measure: guestStream(64 << 10)},
}

// curve has the WRITE sizes of the throughput plot.
var curve = []int{8, 64, 512, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20}

// losses are the percentages of packets that bridges and guests lose.
var losses = []float64{0, 0.1, 1}

// rows returns every row on a wire.
func rows(on places) []Row {
	var list []Row
	for _, r := range slices.Concat(table, dropinRows, incastTable()) {
		if r.On == on {
			list = append(list, r)
		}
	}
	for _, size := range curve {
		name := writeName(size)
		if on == everyMTU && !slices.ContainsFunc(list, func(r Row) bool { return r.Name == name }) {
			list = append(list, Row{Name: name, Unit: gbps, Measure: pair(stream(ib.WRWrite, size))})
		}
	}
	return list
}

func writeName(size int) string { return "RC WRITE " + sizeName(size) }

func rxeName(size int) string { return "rdma_rxe " + writeName(size) + " (ib_write_bw)" }

func sizeName(size int) string {
	switch {
	case size < 1<<10:
		return fmt.Sprintf("%d B", size)
	case size < 1<<20:
		return fmt.Sprintf("%d KiB", size>>10)
	}
	return fmt.Sprintf("%d MiB", size>>20)
}

package perf

import (
	"encoding/json"
	"io"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Report is the result of a run. JSON names are perftest's.
type Report struct {
	Info Info `json:"test_info"`
	// Results has a row for each size. The server of a one-sided test that is not bidirectional has what the client
	// reports: the last row of a bandwidth test, and nothing of a latency test.
	Results []Row `json:"results"`
}

// Info describes the test.
type Info struct {
	Test        string `json:"test"`
	DualPort    string `json:"Dual_port"`
	Device      string `json:"Device"`
	NumQP       int    `json:"Number_of_qps"`
	Transport   string `json:"Transport_type"`
	Connection  string `json:"Connection_type"`
	SRQ         string `json:"Using_SRQ"`
	TxDepth     int    `json:"TX_depth,omitempty"`
	RxDepth     int    `json:"RX_depth,omitempty"`
	CQMod       int    `json:"CQ_Moderation,omitempty"`
	PostList    int    `json:"Post_list,omitempty"`
	MTU         int    `json:"Mtu"`
	LinkType    string `json:"Link_type"`
	GIDIndex    int    `json:"GID_index"`
	Outstanding int    `json:"Outstand_reads,omitempty"`
	Inline      int    `json:"Max_inline_data"`
	CM          string `json:"rdma_cm_QPs"`
	Exchange    string `json:"Data_ex_method"`
	Unit        string `json:"BW_unit,omitempty"` // of BW_peak and BW_average
}

// Row is the result of one size.
type Row struct {
	Size       int     `json:"MsgSize"`
	Iterations int64   `json:"n_iterations"` // messages that were measured, of all queue pairs
	Lost       int64   `json:"lost,omitempty"`
	Seconds    float64 `json:"seconds,omitempty"` // time that they took; 0 if the peer has measured it
	*Bandwidth
	*Latency
}

// Bandwidth is the result of a BW test, the sum of both directions if it is bidirectional.
type Bandwidth struct {
	// Peak is in MiB/s or Gb/s (Info.Unit): the bandwidth of the best stretch of one queue depth; 0 with a duration.
	Peak    float64 `json:"BW_peak"`
	Average float64 `json:"BW_average"` // of the whole run
	MsgRate float64 `json:"MsgRate"`    // millions of messages per second
}

// Latency is the result of a Lat test in microseconds: half of a round trip for Send and Write, the whole round trip
// for Read and Atomic.
type Latency struct {
	Min     float64 `json:"t_min"`
	Max     float64 `json:"t_max"`
	Typical float64 `json:"t_typical"` // median
	Average float64 `json:"t_avg"`
	StdDev  float64 `json:"t_stdev"`
	P99     float64 `json:"percentile_99"`
	P999    float64 `json:"percentile_99.9"`
	TPS     float64 `json:"tps_average"` // messages per second
}

// WriteJSON writes the report, indented.
func (r *Report) WriteJSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(r)
}

// Units of bandwidth.
const (
	unitMB, unitGb = "MB/sec", "Gb/sec" // perftest's MB is 2^20 bytes
	bytesMB        = 1 << 20
	bytesGb        = 1e9 / 8
)

func (o *Options) unit() (name string, size float64) {
	if o.Gbits {
		return unitGb, bytesGb
	}
	return unitMB, bytesMB
}

// tally counts messages over time.
type tally struct {
	count       int64
	start, stop time.Time
	stretch     int64   // number of messages of a stretch that may be the peak
	best        float64 // messages per second
	markCount   int64
	markTime    time.Time
}

func (t *tally) begin(now time.Time, stretch int64) {
	*t = tally{start: now, stop: now, stretch: stretch, markTime: now}
}

func (t *tally) running() bool { return !t.start.IsZero() }

func (t *tally) add(n int64, now time.Time) {
	t.count += n
	t.stop = now
	if done := t.count - t.markCount; done >= t.stretch {
		t.best = max(t.best, perSecond(done, now.Sub(t.markTime)))
		t.markCount, t.markTime = t.count, now
	}
}

func perSecond(n int64, d time.Duration) float64 {
	if d <= 0 {
		return 0
	}
	return float64(n) / d.Seconds()
}

// row returns the row of the table for messages of a size.
func (t *tally) row(o *Options, size int) Row {
	_, unit := o.unit()
	elapsed := t.stop.Sub(t.start)
	rate := perSecond(t.count, elapsed)
	b := &Bandwidth{Average: rate * float64(size) / unit, MsgRate: rate / 1e6}
	if o.Duration == 0 {
		b.Peak = max(t.best, rate) * float64(size) / unit
	}
	return Row{Size: size, Iterations: t.count, Seconds: elapsed.Seconds(), Bandwidth: b}
}

// add adds the other direction.
func (r *Row) add(other *Row) {
	r.Peak += other.Peak
	r.Bandwidth.Average += other.Bandwidth.Average
	r.MsgRate += other.MsgRate
}

// samples are latencies: the times between two messages.
type samples struct {
	hist *hdrhistogram.Histogram // nanoseconds
	last time.Time
}

// Samples are recorded with three digits, up to a minute.
const (
	maxSample    = int64(time.Minute)
	sampleDigits = 3
)

func (s *samples) begin() {
	if s.hist == nil {
		s.hist = hdrhistogram.New(1, maxSample, sampleDigits)
	}
	s.hist.Reset()
	s.last = time.Time{}
}

// tick ends a sample and begins the next.
func (s *samples) tick(now time.Time) {
	if !s.last.IsZero() {
		_ = s.hist.RecordValue(min(int64(now.Sub(s.last)), maxSample)) // fails only above the limit
	}
	s.last = now
}

// row returns the row of the table for messages of a size. It divides the samples by trips (see traits).
func (s *samples) row(size, trips int) Row {
	us := func(ns float64) float64 { return ns / 1e3 / float64(trips) }
	h := s.hist
	l := &Latency{
		Min: us(float64(h.Min())), Max: us(float64(h.Max())), Average: us(h.Mean()), StdDev: us(h.StdDev()),
		Typical: us(float64(h.ValueAtQuantile(50))), P99: us(float64(h.ValueAtQuantile(99))),
		P999: us(float64(h.ValueAtQuantile(99.9))),
	}
	seconds := h.Mean() * float64(h.TotalCount()) / 1e9
	if seconds > 0 {
		l.TPS = float64(h.TotalCount()) / seconds
	}
	return Row{Size: size, Iterations: h.TotalCount(), Seconds: seconds, Latency: l}
}

package perf

import (
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"golang.org/x/sys/unix"
)

// meter counts what happens within an interval, which begins after the warm-up.
type meter struct {
	opens, closes time.Time
	open, done    bool // within the interval; after it
	total         uint64
	latency       *hdrhistogram.Histogram // in ns

	start, end mark    // start is that of the warm-up until the interval opens
	daemon     *daemon // daemon whose processor time is included
}

// mark is a reading at the start or the end of the interval.
type mark struct {
	at    time.Time
	total uint64
	cpu   time.Duration
}

// maxLatency is the largest latency that is recorded; larger ones count as maxLatency.
const maxLatency = 10 * time.Second

// newMeter returns a meter whose warm-up begins now.
func newMeter(j *Job) *meter {
	now := time.Now()
	opens := now.Add(warmup(j.Duration))
	m := &meter{opens: opens, closes: opens.Add(j.Duration), latency: hdrhistogram.New(1, int64(maxLatency), 3),
		daemon: j.daemon}
	m.start = m.mark(now)
	return m
}

// warmup returns how long a row runs before it is measured, to resolve neighbours and let windows grow.
func warmup(d time.Duration) time.Duration { return min(d/4, 250*time.Millisecond) }

// add counts n more, and reads the clock.
func (m *meter) add(n int) {
	m.total += uint64(n)
	m.look(time.Now())
}

// record records a round trip that has ended at now.
func (m *meter) record(began, now time.Time) {
	m.total++
	if m.open {
		_ = m.latency.RecordValue(min(int64(now.Sub(began)/2), int64(maxLatency)))
	}
	m.look(now)
}

func (m *meter) look(now time.Time) {
	switch {
	case m.done:
	case !m.open && !now.Before(m.opens):
		m.open, m.start = true, m.mark(now)
	case m.open && !now.Before(m.closes):
		m.open, m.done, m.end = false, true, m.mark(now)
	}
}

func (m *meter) mark(now time.Time) mark {
	var u unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_SELF, &u) // cannot fail
	return mark{at: now, total: m.total, cpu: time.Duration(u.Utime.Nano()+u.Stime.Nano()) + m.daemon.cpu()}
}

// sleep waits until the end of the interval, at an end that has nothing to do.
func (m *meter) sleep() {
	time.Sleep(time.Until(m.opens))
	m.add(0)
	time.Sleep(time.Until(m.closes))
	m.add(0)
}

// result returns what was counted in the interval. If the interval has not ended, that is up to now: the other end may
// be done a moment earlier. On a busy machine it may even be done before this end has looked at the clock within the
// interval; what this end has used is then counted from the warm-up on.
func (m *meter) result() Result {
	if !m.done {
		m.end = m.mark(time.Now())
	}
	r := Result{
		Began:    m.start.at,
		Seconds:  m.end.at.Sub(m.start.at).Seconds(),
		CPU:      (m.end.cpu - m.start.cpu).Seconds(),
		Messages: float64(m.end.total - m.start.total),
	}
	if m.latency.TotalCount() > 0 {
		for _, q := range quantiles {
			r.Latency = append(r.Latency, float64(m.latency.ValueAtQuantile(q))/1e3)
		}
	}
	return r
}

// quantiles are the percentiles of a latency row; the median is first.
var quantiles = []float64{50, 90, 99, 99.9, 99.99}

// Result is the result of one end, or of both together.
type Result struct {
	Seconds  float64   `json:"seconds"`  // of the interval
	CPU      float64   `json:"cpu"`      // processor time in the interval, in seconds
	Messages float64   `json:"messages"` // messages counted in the interval
	Bytes    float64   `json:"bytes"`    // payload
	Packets  float64   `json:"packets"`  // packets with payload
	Latency  []float64 `json:"latency_us,omitempty"`
	PerQP    float64   `json:"bytes_per_qp,omitempty"`
	Daemon   float64   `json:"daemon_mib,omitempty"` // memory of a daemon
	Calls    float64   `json:"system_calls,omitempty"`
	Wakes    float64   `json:"wake_ups,omitempty"`

	Began time.Time `json:"began,omitzero"` // when the interval did

	Skip string `json:"skip,omitempty"` // the reason if nothing was measured
}

// of returns r with messages of size bytes, which take packets packets each.
func (r Result) of(size, packets int) Result {
	r.Bytes, r.Packets = r.Messages*float64(size), r.Messages*float64(packets)
	return r
}

// merge merges the results of the two ends. Only one of them has counted; the processor time of the other is scaled to
// the same interval.
func merge(a, b Result) Result {
	if b.Messages > a.Messages || b.PerQP > a.PerQP {
		a, b = b, a
	}
	if b.Seconds > 0 {
		a.CPU += b.CPU * a.Seconds / b.Seconds
	}
	return a
}

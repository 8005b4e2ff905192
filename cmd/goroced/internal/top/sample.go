package top

import (
	"context"
	"iter"
	"net/netip"
	"time"

	"github.com/goroce/goroce/roce/daemon/server"
)

// Source returns the queue pairs of a daemon.
type Source func(ctx context.Context) ([]server.QPInfo, error)

// Sample is what a Source has returned.
type Sample struct {
	At  time.Time
	QPs []server.QPInfo
}

// Intervals yields the rows of each interval, until the context ends or no sample can be taken.
func (get Source) Intervals(ctx context.Context, interval time.Duration) iter.Seq2[[]Row, error] {
	return func(yield func([]Row, error) bool) {
		tick := time.NewTicker(interval)
		defer tick.Stop()
		before, err := get.take(ctx)
		for {
			if err != nil {
				yield(nil, err)
				return
			}
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			var after Sample
			if after, err = get.take(ctx); err != nil {
				continue
			}
			if !yield(Rows(before, after), nil) {
				return
			}
			before = after
		}
	}
}

func (get Source) take(ctx context.Context) (Sample, error) {
	qps, err := get(ctx)
	return Sample{time.Now(), qps}, err
}

// Row is what a queue pair, or the queue pairs of a process on a device, did between two samples. Rates are per second.
type Row struct {
	Device string     `json:"device"`
	QPs    int        `json:"qps"`            // how many the row is about
	QPN    uint32     `json:"lqpn,omitempty"` // 0 for a process, and where it is not shown to the user
	Type   string     `json:"type,omitempty"`
	State  string     `json:"state,omitempty"`
	Peer   netip.Addr `json:"peer"`

	SentBits     float64 `json:"sent_bits"` // of packets, from the BTH to the ICRC
	RcvdBits     float64 `json:"rcvd_bits"`
	SentMessages float64 `json:"sent_messages"`
	RcvdMessages float64 `json:"rcvd_messages"`
	ResentPkts   float64 `json:"resent_pkts"`
	ResentBits   float64 `json:"resent_bits"`
	SpuriousPkts float64 `json:"spurious_pkts"` // sent again in vain, as far as it is known
	RNR          float64 `json:"rnr"`           // RNR NAKs, sent and received

	RTT      time.Duration `json:"rtt_ns,omitempty"` // of a process: the longest
	Window   int           `json:"window,omitempty"` // congestion window in packets; of a process: the smallest
	InFlight int           `json:"in_flight,omitempty"`
	MinRTT   time.Duration `json:"min_rtt_ns,omitempty"` // the shortest round trip; of a process: the longest of these
	PaceBits int64         `json:"pace_bits,omitempty"`  // what may leave to the destination; of a process: the smallest
	Marks    float64       `json:"marks"`                // marked packets and CNPs from the destination; of a process: the most
	Control  string        `json:"congestion,omitempty"` // congestion control
	Failed   string        `json:"failed,omitempty"`     // why it has failed

	server.Owner
}

// key identifies a queue pair in two samples.
type key struct {
	device string
	qpn    uint32
	pid    int32
}

func keyOf(q *server.QPInfo) key { return key{q.Device, q.QPN, q.PID} }

// Rows returns a row for each queue pair of after. One that is not in before has done all that it counts since then.
func Rows(before, after Sample) []Row {
	old := map[key]*server.Traffic{}
	for i := range before.QPs {
		old[keyOf(&before.QPs[i])] = before.QPs[i].Traffic
	}
	seconds := max(after.At.Sub(before.At).Seconds(), 1e-3)
	rows := make([]Row, 0, len(after.QPs))
	for i := range after.QPs {
		q := &after.QPs[i]
		r := Row{Device: q.Device, QPs: 1, QPN: q.QPN, Type: q.Type, State: q.State, Peer: q.Peer, Failed: q.Failed,
			Owner: q.Owner}
		if q.Traffic != nil {
			r.add(old[keyOf(q)], q.Traffic, seconds)
		}
		rows = append(rows, r)
	}
	return rows
}

// add fills in what has happened between two counts; was is nil if there is none.
func (r *Row) add(was, is *server.Traffic, seconds float64) {
	if was == nil || was.SentBytes > is.SentBytes || was.RcvdBytes > is.RcvdBytes { // the number has another QP now
		was = &server.Traffic{}
	}
	rate := func(was, is uint64) float64 { return float64(is-was) / seconds }
	r.SentBits, r.RcvdBits = 8*rate(was.SentBytes, is.SentBytes), 8*rate(was.RcvdBytes, is.RcvdBytes)
	r.SentMessages = rate(was.SentMessages, is.SentMessages)
	r.RcvdMessages = rate(was.RcvdMessages, is.RcvdMessages)
	r.ResentPkts = rate(was.ResentPkts, is.ResentPkts)
	r.RNR = rate(was.SentRNR+was.RcvdRNR, is.SentRNR+is.RcvdRNR)
	r.ResentBits, r.SpuriousPkts = 8*rate(was.ResentBytes, is.ResentBytes), rate(was.SpuriousPkts, is.SpuriousPkts)
	r.RTT, r.Window, r.InFlight, r.MinRTT, r.PaceBits = is.RTT, is.Window, is.InFlight, is.MinRTT, is.PaceBits
	r.Control = is.Control
	if was.MarkedPkts <= is.MarkedPkts && was.RcvdCNPs <= is.RcvdCNPs { // else it has another destination
		r.Marks = rate(was.MarkedPkts+was.RcvdCNPs, is.MarkedPkts+is.RcvdCNPs)
	}
}

// Processes adds up the rows of each process on a device, in the order in which they come first.
func Processes(rows []Row) []Row {
	at := map[key]int{}
	var sums []Row
	for _, r := range rows {
		k := key{device: r.Device, pid: r.PID}
		i, ok := at[k]
		if !ok {
			i = len(sums)
			at[k] = i
			sums = append(sums, Row{Device: r.Device, Owner: r.Owner})
		}
		s := &sums[i]
		s.QPs += r.QPs
		s.SentBits, s.RcvdBits = s.SentBits+r.SentBits, s.RcvdBits+r.RcvdBits
		s.SentMessages, s.RcvdMessages = s.SentMessages+r.SentMessages, s.RcvdMessages+r.RcvdMessages
		s.ResentPkts, s.RNR = s.ResentPkts+r.ResentPkts, s.RNR+r.RNR
		s.ResentBits, s.SpuriousPkts = s.ResentBits+r.ResentBits, s.SpuriousPkts+r.SpuriousPkts
		s.RTT, s.InFlight = max(s.RTT, r.RTT), max(s.InFlight, r.InFlight)
		s.MinRTT, s.Marks = max(s.MinRTT, r.MinRTT), max(s.Marks, r.Marks)
		s.Window, s.PaceBits = least(s.Window, r.Window), least(s.PaceBits, r.PaceBits)
		if s.Control == "" {
			s.Control = r.Control
		}
		if s.Failed == "" {
			s.Failed = r.Failed
		}
	}
	return sums
}

// least returns the smaller one, but for 0, which is none.
func least[T int | int64](a, b T) T {
	if a == 0 || b == 0 {
		return max(a, b)
	}
	return min(a, b)
}

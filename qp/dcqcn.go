package qp

import (
	"math"

	"github.com/goroce/goroce/ib"
)

// dcqcn is the congestion control of RoCE NICs: a rate that CNPs make smaller, and that grows again with time and
// with what is sent (Zhu et al., Congestion Control for Large-Scale RDMA Deployments, 2015). The constants are the
// defaults of NVIDIA's NICs. It wants switches that mark (ECN), and has no window; here two of the shortest round trips
// at the rate bound what is in flight. A loss counts like a CNP. Rates are in bytes a nanosecond.
type dcqcn struct {
	rate, target float64
	alpha        float64 // how much congestion there was lately, 0 to 1
	alphaAt      ib.Instant
	cutAt        ib.Instant // the latest reduction
	timeStage    int        // increases since then by time
	byteStage    int        // and by what was sent
	timer        ib.Instant // when the latest of the first began
	bytes        int        // acknowledged since the latest of the others
	cwnd         float64    // two of the shortest round trips at the rate, in packets
}

const (
	mbps             = 1.0 / 8000 // bytes a nanosecond
	dcqcnLine        = 10_000 * mbps
	dcqcnLeast       = 1 * mbps            // rpg_min_rate
	dcqcnAI          = 5 * mbps            // rpg_ai_rate
	dcqcnHAI         = 50 * mbps           // rpg_hai_rate
	dcqcnTimer       = ib.Instant(300_000) // rpg_time_reset
	dcqcnBytes       = 32767 * 64          // rpg_byte_reset
	dcqcnStages      = 1                   // rpg_threshold
	dcqcnMonitor     = ib.Instant(4_000)   // rate_reduce_monitor_period
	dcqcnDecay       = 1019.0 / 1024       // dce_tcp_g, each microsecond (dce_tcp_rtt)
	dcqcnGain        = 1 - dcqcnDecay
	dcqcnWindowLeast = 4
)

func newDCQCN() *dcqcn {
	return &dcqcn{rate: dcqcnLine, target: dcqcnLine, alpha: 1, cwnd: cwndStart}
}

func (d *dcqcn) window() float64           { return d.cwnd }
func (d *dcqcn) pace(*rttEstimate) float64 { return 1024 / d.rate }
func (d *dcqcn) sawQueue() bool            { return false }
func (d *dcqcn) restore(float64)           { d.rate = d.target }

func (d *dcqcn) acked(f *Flow, now ib.Instant, n int) {
	for d.bytes += 1024 * n; d.bytes >= dcqcnBytes; d.bytes -= dcqcnBytes {
		d.byteStage++
		d.increase()
	}
	d.timer = max(d.timer, now-100*dcqcnTimer) // an idle one is at its target long before
	for ; now-d.timer >= dcqcnTimer; d.timer += dcqcnTimer {
		d.timeStage++
		d.increase()
	}
	d.measure(f)
}

// increase is fast recovery, additive increase or hyper increase.
func (d *dcqcn) increase() {
	switch {
	case min(d.timeStage, d.byteStage) > dcqcnStages:
		d.target += dcqcnHAI
	case max(d.timeStage, d.byteStage) > dcqcnStages:
		d.target += dcqcnAI
	}
	d.target = min(d.target, dcqcnLine)
	d.rate = (d.rate + d.target) / 2
}

func (d *dcqcn) congested(f *Flow, now ib.Instant, by congestion) {
	if d.cutAt > 0 && now < d.cutAt+dcqcnMonitor {
		return
	}
	if d.alphaAt > 0 {
		d.alpha = min(d.alpha*math.Pow(dcqcnDecay, float64(now-d.alphaAt)/1000)+dcqcnGain, 1)
	}
	if d.alphaAt = now; d.timeStage+d.byteStage > 0 || d.cutAt == 0 {
		d.target = d.rate
	}
	part := d.alpha / 2
	if by == bySilence {
		part = 0.5
	}
	d.rate = max(d.rate*(1-part), dcqcnLeast)
	d.cutAt, d.timer, d.timeStage, d.byteStage, d.bytes = now, now, 0, 0, 0
	d.measure(f)
}

// measure bounds what is in flight.
func (d *dcqcn) measure(f *Flow) {
	if f.rtt.least > 0 {
		d.cwnd = min(max(2*d.rate*float64(f.rtt.least)/1024, dcqcnWindowLeast), f.windowMost())
	}
}

package qp

import "github.com/goroce/goroce/ib"

// Bounds of a congestion window, in packets.
const (
	cwndStart = 16 // as quic and Falcon start
	cwndMin   = 1.0 / 64
	cwndMax   = 16384
	// A path with a round trip of up to windowRTT nanoseconds has up to windowNear packets in flight: with 1,024 bytes
	// each they are 16 Gb/s, and what is beyond would only wait in queues. Longer paths have more in proportion.
	windowNear = 1024
	windowRTT  = 500_000
)

// Control is a congestion control.
type Control uint8

// Congestion controls.
const (
	Cubic Control = iota // RFC 9438
	DCQCN                // that of RoCE NICs, for networks that mark
)

// ControlNamed returns the congestion control of this name: "cubic", which is also that of "", or "dcqcn". ok is false
// if there is none.
func ControlNamed(name string) (c Control, ok bool) {
	switch name {
	case "", "cubic":
		return Cubic, true
	case "dcqcn":
		return DCQCN, true
	}
	return 0, false
}

// FlowConfig says how a Flow begins.
type FlowConfig struct {
	Control Control
	// Window is a known congestion window of Cubic, in packets, with which slow start is over. 0: it is not known.
	Window int
}

// A congestion control decides how much may be in flight to a destination, and how fast it leaves. A Flow tells
// it what happens to the packets.
type congestionControl interface {
	// acked handles that n packets were acknowledged.
	acked(f *Flow, now ib.Instant, n int)
	// congested handles a sign of congestion.
	congested(f *Flow, now ib.Instant, by congestion)
	// sawQueue reports whether a loss is congestion for sure: round trips have become longer in slow start.
	sawQueue() bool
	// restore undoes what was done for a sign that was a mistake: the window was cwnd before.
	restore(cwnd float64)
	// window returns the congestion window, in packets. One below 1 is a packet that leaves less often than once a
	// round trip.
	window() float64
	// pace returns the nanoseconds that 1,024 bytes take to leave; 0 is no limit.
	pace(rtt *rttEstimate) float64
}

// congestion is a sign of it.
type congestion uint8

const (
	byLoss    congestion = iota
	byMark               // ECN: nothing is lost
	bySilence            // nothing has come from the destination for an ACK timeout
)

// onACK handles that n packets were acknowledged.
func (f *Flow) onACK(now ib.Instant, n int) {
	if n <= 0 {
		return
	}
	f.heard = now
	f.unsettled -= n
	f.rate.add(now, n, f.rtt.mean)
	f.losses.add(n)
	if cwnd := f.gate.onACK(now, n); cwnd > 0 {
		f.cc.restore(cwnd)
	}
	f.cc.acked(f, now, n)
	f.adjust()
}

// onGap handles a loss of an unknown number of packets, which a NAK shows.
func (f *Flow) onGap(now ib.Instant) {
	f.gate.late.looksLost(1)
	f.reduced.cwnd = 0
	f.onLoss(now)
}

// onLoss handles a loss.
func (f *Flow) onLoss(now ib.Instant) {
	f.undoCwnd = 0
	if !f.onlyLate() {
		f.decrease(now, byLoss)
	}
}

// onlyLate reports whether what looks lost is taken to be late: packets overtake each other, and no queue is seen.
func (f *Flow) onlyLate() bool { return f.gate.late.common() && !f.rtt.queued() }

// onLate handles that n packets were sent again in vain: what looked lost was late.
func (f *Flow) onLate(n int) { f.gate.late.wasLate(n) }

// onReordered handles that n of these were not sent again by a probe or an ACK timeout: packets overtake each other.
func (f *Flow) onReordered(now ib.Instant, n int) {
	f.rack.late(&f.rtt)
	if cwnd := f.reduced.late(now, n, f.rtt.least); cwnd > 0 {
		f.cc.restore(cwnd)
		f.adjust()
	}
}

// reorderWait returns for how long what is missing may be late, in nanoseconds.
func (f *Flow) reorderWait() ib.Instant { return f.rack.wait(&f.rtt) }

// onLost handles that n packets are lost, which is congestion unless the gate says that it is not.
func (f *Flow) onLost(now ib.Instant, n int) {
	f.unsettled -= n
	f.losses.lost += n
	f.rack.lost()
	f.gate.late.looksLost(n)
	f.reduced.lost += n
	cwnd := f.cc.window()
	if f.judge(now, n); f.cc.window() < cwnd {
		f.reduced.begin(now, cwnd, n, f.rtt.flight())
	}
}

// judge answers the loss of n packets.
func (f *Flow) judge(now ib.Instant, n int) {
	if f.onlyLate() {
		return
	}
	if f.cc.sawQueue() {
		f.onLoss(now)
		return
	}
	switch f.gate.judge(now, &f.rtt, n, f.cc.window()) {
	case lossCongestion:
		// The queue is shorter than what the path holds, or losses are few, so that what a READ loses is soon asked
		// for again.
		if f.rtt.mean-f.rtt.least < f.rtt.least/2 || f.losses.rare() {
			f.shortUntil = now + shortFor
		}
		f.onLoss(now)
	case lossTrial:
		f.decrease(now, byLoss)
	}
}

// onMark answers a congestion notification.
func (f *Flow) onMark(now ib.Instant) {
	f.reduced.cwnd = 0
	f.decrease(now, byMark)
}

// onTimeout handles an ACK timeout of so many nanoseconds: a loss, or if the destination has been silent all that time
// the sign that nothing gets through. undo can restore the window.
func (f *Flow) onTimeout(now ib.Instant, timeout int64) {
	f.reduced.cwnd = 0
	if f.undoCwnd == 0 {
		f.undoCwnd = f.cc.window()
	}
	if int64(now-f.heard) >= timeout {
		f.decrease(now, bySilence)
	} else {
		f.decrease(now, byLoss)
	}
}

// undo restores a part of the window from before ACK timeouts: all of it if they ended before the peer could have
// answered, when nothing was lost (RFC 4015, 3).
func (f *Flow) undo(part float64) {
	if f.undoCwnd > 0 {
		f.cc.restore(part * f.undoCwnd)
		f.undoCwnd = 0
		f.adjust()
	}
}

func (f *Flow) decrease(now ib.Instant, by congestion) {
	f.cc.congested(f, now, by)
	f.adjust()
}

// adjust takes over what the congestion control has decided.
func (f *Flow) adjust() {
	cwnd := f.cc.window()
	f.cwnd = max(int(cwnd), 1)
	f.pace.set(f.cc.pace(&f.rtt), cwnd)
}

// lossCount counts packets that were lost, and acknowledged, lately.
type lossCount struct{ lost, acked int }

// lossCountMost is how many acknowledged packets are remembered at most.
const lossCountMost = 8192

func (c *lossCount) add(acked int) {
	if c.acked += acked; c.acked > lossCountMost {
		c.lost, c.acked = c.lost/2, c.acked/2
	}
}

// rare reports whether less than half a percent is lost, as by a flow that fills a queue alone.
func (c *lossCount) rare() bool { return c.lost*200 < c.acked }

// ackRate counts what was acknowledged in a round trip.
type ackRate struct {
	ends          ib.Instant // of the count
	count, before int
}

func (r *ackRate) add(now ib.Instant, n int, rtt int64) {
	if now >= r.ends {
		r.before, r.count, r.ends = r.count, 0, now+ib.Instant(rtt)
	}
	r.count += n
}

// window returns how many packets were acknowledged in a round trip lately, which is what the path carries if it was
// full.
func (r *ackRate) window() int { return max(r.before, r.count) }

// windowMost returns the largest useful window.
func (f *Flow) windowMost() float64 {
	return float64(min(max(f.rtt.least*windowNear/windowRTT, windowNear), cwndMax))
}

// limits notes that there is more to send than the window or the pace allows.
func (f *Flow) limits() { f.limited = f.rtt.round }

// wasLimited reports whether that was so lately: only then does an ACK show that a larger window may be right
// (RFC 9438, 5.8).
func (f *Flow) wasLimited() bool { return f.rtt.round-f.limited <= 1 }

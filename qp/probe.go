package qp

import "github.com/goroce/goroce/ib"

// This file is the tail probe. A responder speaks up about a gap only when a later
// packet arrives, and only once: if the last packet of a flight is lost, or the
// NAK, or what is sent again, both sides are silent until the ACK timeout, which
// is a thousand round trips on a short path. A requester may send again at any
// time, and what the responder has seen is acknowledged anew (IBTA 9.7.5.1.3). So
// after a silence of a few round trips it asks what has become of its packets, in
// the manner of TCP's tail loss probe (RFC 8985, 7):
//
//   - with the oldest packet in flight, which is what a responder waits for that
//     has sent its NAK;
//   - with the latest one behind it, which shows a responder that has seen no gap
//     yet that there is one.
//
// The answer is an ACK or a sequence NAK, and the completer goes on from there. A
// probe is outside of all accounts: it takes no retry, leaves the ACK timer and
// the Flow alone, and is no sign of a loss by itself, for the answer may just be
// late. rdma_rxe has none.

const (
	// rttUnknown stands for what follows from the round trip until one has been
	// measured, in nanoseconds.
	rttUnknown = 4_000_000
	// probeLeast leaves a peer the time to be scheduled, in nanoseconds.
	probeLeast = 300_000
	// probesMost bounds the probes without a measured round trip. Each waits twice
	// as long as the one before, and a peer that is gone is not asked for ever.
	probesMost = 10
	// probesCarried is how many probes in a row, each answered, make the waits longer and longer.
	probesCarried = 3
)

// rttEstimate is the round trip to a destination, the delay of the peer's ACKs
// included, and how far samples are from it, both smoothed (RFC 6298, 2), in
// nanoseconds.
type rttEstimate struct {
	mean      int64 // 0 before the first sample
	deviation int64
	least     int64 // of the samples without doubt; 0 before the first
}

func (e *rttEstimate) add(sample int64) {
	if e.mean == 0 {
		e.mean, e.deviation = max(sample, 1), sample/2
		return
	}
	off := sample - e.mean
	e.deviation += (max(off, -off) - e.deviation) / 4
	e.mean = max(e.mean+off/8, 1)
}

// flight is how long the answers to what was sent at one time take.
func (e *rttEstimate) flight() int64 {
	if e.mean == 0 {
		return rttUnknown
	}
	return e.mean
}

// overdue is how long to wait for an answer before it is asked for: two round trips
// (RFC 8985, 7.2), or more to a peer whose answers take now this long and now that
// (RFC 6298, 2.3), which would be probed for nothing.
func (e *rttEstimate) overdue() int64 {
	if e.mean == 0 {
		return rttUnknown
	}
	return max(e.rto(), probeLeast)
}

// rto is how long an answer may take, by the estimate (RFC 6298, 2.3); 0 before the first
// sample.
func (e *rttEstimate) rto() int64 { return max(2*e.mean, e.mean+4*e.deviation) }

// sure adds a sample without doubt.
func (e *rttEstimate) sure(sample int64) {
	if e.add(sample); e.least == 0 {
		e.least = sample
	}
	e.least = max(min(e.least, sample), 1)
}

// tooSoon reports whether an answer that comes so long after a packet cannot be its own. What
// counts is the shortest round trip, if one is known: the mean is too long where packets
// get lost.
func (e *rttEstimate) tooSoon(after int64) bool {
	if e.least == 0 {
		return after < e.mean/2
	}
	return after < e.least/2
}

// prober measures round trips, and knows what is left of a probe.
type prober struct {
	timedAt ib.Instant // when the packet that is timed left
	againAt ib.Instant // when the peer was asked again the last time
	timed   ib.PSN
	timing  bool
	again   again // what the peer was asked again for
	sent    uint8 // probes since a round trip was measured: each waits twice as long as the one before
	due     uint8 // packets of a probe that are to leave
}

// again says whether the peer was asked again since a packet is timed: whatever comes may
// be the answer to that.
type again uint8

const (
	never again = iota
	byProbe
	byTimeout // of the ACK, since una moved
)

// stop forgets the packet that is timed, and the probe that is to leave.
func (p *prober) stop() { p.timing, p.due = false, 0 }

// askedAgain notes that the peer is asked again.
func (p *prober) askedAgain(now ib.Instant, why again) { p.again, p.againAt = why, now }

// timeRTT times packets that ask for an ACK, one at a time. Those that are sent
// again will do: a responder that sent a NAK has discarded the ones before.
func (r *requester) timeRTT(now ib.Instant, tx *TxPacket) {
	p := &r.probe
	if tx.AckReq && !p.timing {
		p.timing, p.again, p.timed, p.timedAt = true, never, tx.PSN, now
	}
}

// heard notes that una has moved, and measures the round trip.
func (r *requester) heard(now ib.Instant) {
	r.probe.due = 0
	r.probeAnswered(now)
	r.judgeTimeout(now)
	r.measure(now)
	r.armProbe(now)
}

// measure takes the time of the packet that is timed. If the peer was asked again since,
// it is in doubt what has been answered (Karn, RFC 6298, 3):
//   - An answer that comes sooner after that than the peer can answer is that to the
//     packet itself.
//   - One that comes later than the peer ever took says that the path has become longer,
//     at least as long as that is ago.
//   - In between nothing can be said. But an ACK timeout does not back off, as probes do:
//     if it is too early again and again the estimate rises step by step.
func (r *requester) measure(now ib.Instant) {
	p, rtt := &r.probe, &r.q.flow.rtt
	if !p.timing || !p.timed.Before(r.win.una) {
		return
	}
	p.timing = false
	sample, since := int64(now-p.timedAt), int64(now-p.againAt)
	switch {
	case p.again == never:
		rtt.sure(sample)
		p.sent = 0
	case rtt.tooSoon(since):
		rtt.add(sample)
		p.sent = 0
	case since > rtt.rto(): // or it is the first
		rtt.add(since)
	case p.again == byTimeout:
		rtt.add(min(2*rtt.mean, sample))
	}
}

// probeAnswered notes that the peer has said something new. If that comes as soon after a
// probe as the peer takes to answer, packets get lost, and the waits become shorter: a
// network that loses packets for hours must not wear probes out. If it comes at another
// time it may be late, of a path that has become longer, and the waits stay as long as
// they are until a round trip is measured.
func (r *requester) probeAnswered(now ib.Instant) {
	p := &r.probe
	if p.sent > probesCarried && int64(now-p.againAt) <= r.q.flow.rtt.rto() {
		p.sent /= 2
	}
}

// armProbe starts the wait for an answer, if one was asked for.
func (r *requester) armProbe(now ib.Instant) {
	p := &r.probe
	if !r.q.cfg.Probe || r.q.flow.noProbes || p.sent == probesMost || !r.win.holds(r.asked) {
		r.q.timers.clear(timerProbe)
		return
	}
	r.q.timers.set(timerProbe, now+ib.Instant(r.q.flow.rtt.overdue()<<p.sent))
}

// probeTimeout makes a probe due, if anything is in flight that does not wait to be
// sent again.
func (r *requester) probeTimeout(now ib.Instant) {
	if r.sentEnd() == r.win.una || r.q.flow.noProbes {
		return
	}
	p := &r.probe
	p.due = 2
	p.sent++
	r.q.cfg.Stats.TailProbes++
	r.armProbe(now)
}

// probePacket builds the next packet of a probe: the oldest in flight, then the
// latest, unless that was all. One that belongs to a READ asks for all that is
// missing of it (see repeat).
func (r *requester) probePacket(now ib.Instant, tx *TxPacket) bool {
	p := &r.probe
	if p.due == 0 {
		return false
	}
	psn, end := r.win.una, r.sentEnd()
	if p.due == 1 {
		psn = end.Add(-1)
	}
	if r.blocked(psn) {
		p.due = 0
		return false
	}
	if !r.ready(psn) {
		return false
	}
	p.due--
	p.askedAgain(now, byProbe)
	if _, n := r.repeat(psn, tx); psn.Add(n) == end {
		p.due = 0
	}
	r.askForACK(tx, true)
	return true
}

// sentEnd returns the PSN behind the last one in flight that does not wait to be
// sent again.
func (r *requester) sentEnd() ib.PSN {
	if psn, ok := r.win.firstNeeded(); ok {
		return psn
	}
	return r.win.nxt
}

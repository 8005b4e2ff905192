package qp

import "github.com/goroce/goroce/ib"

// This file is the tail probe. A responder sends a NAK for a gap only when a later
// packet arrives, and only once. If the last packet of a flight is lost, or the NAK,
// or the retransmission, both sides are silent until the ACK timeout, which is a
// thousand round trips on a short path. A requester may send a packet again at any
// time, and the responder acknowledges a duplicate again (IBTA 9.7.5.1.3). So after
// a silence of a few round trips the requester sends two packets again, in the manner
// of TCP's tail loss probe (RFC 8985, 7):
//
//   - the oldest packet in flight, which a responder that has sent a NAK waits for;
//   - then the latest one, which shows a gap to a responder that has not seen it yet.
//
// The answer is an ACK or a sequence NAK, which the completer handles as usual. A
// probe uses no retry, does not change the ACK timer or the Flow, and does not count
// as a loss, since the answer may just be late. rdma_rxe has no tail probe.

const (
	// rttUnknown replaces a time computed from the round trip until one has been
	// measured, in nanoseconds.
	rttUnknown = 4_000_000
	// probeLeast is the shortest wait, in which the peer's thread can be scheduled, in nanoseconds.
	probeLeast = 300_000
	// probesMost bounds the probes without a measured round trip. Each waits about twice
	// as long as the one before, and those to a peer that is gone come to an end.
	probesMost = 10
	// probesCarried is how many probes may be sent before answers to them shorten the wait again.
	probesCarried = 3
	// probesSilent is likewise how many are taken to be sent when ACK timeouts follow each other. Where many senders
	// fill a queue, one that has lost all must try often to find a place in it.
	probesSilent = 2
)

// rttEstimate estimates the round trip to a destination, including the delay of the
// peer's ACKs, and the deviation of samples from it, both smoothed (RFC 6298, 2), in
// nanoseconds.
type rttEstimate struct {
	mean      int64 // 0 before the first sample
	deviation int64
	least     int64 // of the samples from packets that were sent once (sure); 0 before the first

	// Each QP to the destination times packets. The more samples there are in a round trip, the
	// less each one weighs, or else the estimate would forget the slow ones within a part of
	// a round trip (RFC 7323, G).
	ends  ib.Instant // of the round trip under way
	round uint32     // counts them
	count int64      // samples in it so far
	often int64      // samples in the one before

	shortest [2]int64 // the shortest sure sample of this round trip, and of the latest before that had one; 0: none
}

// begin counts a sample, which add follows.
func (e *rttEstimate) begin(now ib.Instant) {
	if now >= e.ends {
		e.often, e.count, e.ends = e.count, 0, now+ib.Instant(e.mean)
		e.round++
		if e.shortest[0] > 0 {
			e.shortest = [2]int64{0, e.shortest[0]}
		}
	}
	e.count++
}

func (e *rttEstimate) add(sample int64) {
	if e.mean == 0 {
		e.mean, e.deviation = max(sample, 1), sample/2
		return
	}
	often := max(e.often, 1)
	off := sample - e.mean
	e.deviation += (max(off, -off) - e.deviation) / (4 * often)
	e.mean = max(e.mean+off/(8*often), 1)
}

// flight is the estimated round trip.
func (e *rttEstimate) flight() int64 {
	if e.mean == 0 {
		return rttUnknown
	}
	return e.mean
}

// overdue is how long to wait for an answer before a probe: two round trips (RFC 8985,
// 7.2), or more if the round trip varies much (RFC 6298, 2.3), since many probes would
// be needless then.
func (e *rttEstimate) overdue() int64 {
	if e.mean == 0 {
		return rttUnknown
	}
	return max(e.rto(), probeLeast)
}

// rto is how long an answer may take, by the estimate (RFC 6298, 2.3); 0 before the first
// sample.
func (e *rttEstimate) rto() int64 { return max(2*e.mean, e.mean+4*e.deviation) }

// sure adds a sample of a packet that was sent once, so that the answer is surely its own.
func (e *rttEstimate) sure(sample int64) {
	if e.least == 0 { // those before were guesses
		e.mean, e.least = 0, sample
	}
	e.add(sample)
	e.least = max(min(e.least, sample), 1)
	if e.shortest[0] == 0 {
		e.shortest[0] = sample
	}
	e.shortest[0] = max(min(e.shortest[0], sample), 1)
}

// queued reports whether packets wait in a queue on the way: the latest round trips are longer than the
// shortest one. Before there are any it reports true.
func (e *rttEstimate) queued() bool {
	latest := e.shortest[0]
	if old := e.shortest[1]; latest == 0 || old > 0 && old < latest {
		latest = old
	}
	return latest == 0 || latest-e.least > max(queueNoise, e.least/8)
}

// tooSoon reports whether an answer that arrives so many nanoseconds after a packet was sent
// comes too soon to answer it.
// It compares with the shortest round trip, if one is known, as losses make the mean too long.
func (e *rttEstimate) tooSoon(after int64) bool {
	if e.least == 0 {
		return after < e.mean/2
	}
	return after < e.least/2
}

// prober measures round trips and counts the packets of a probe that are left to send.
type prober struct {
	timedAt ib.Instant // when the timed packet was sent
	againAt ib.Instant // when the latest probe or ACK timeout was
	timed   ib.PSN
	timing  bool
	resent  bool  // the timed packet is a retransmission
	unsure  bool  // what arrives twice was perhaps sent again by a probe or an ACK timeout
	again   again // why packets were sent again since timedAt
	sent    uint8 // probes since a round trip was measured: each waits twice as long as the one before
	due     uint8 // packets of a probe that are still to be sent
}

// again says whether packets were sent again, by a probe or an ACK timeout, while a packet is
// timed: the next answer may belong to one of these.
type again uint8

const (
	never again = iota
	byProbe
	byTimeout // the ACK timeout
)

// stop stops timing a packet, and drops the rest of a probe.
func (p *prober) stop() { p.timing, p.due = false, 0 }

// askedAgain records that a probe or an ACK timeout sends packets again.
func (p *prober) askedAgain(now ib.Instant, why again) { p.again, p.againAt, p.unsure = why, now, true }

// explains reports whether a probe or an ACK timeout may be why something has arrived twice. SACKs may tell so late:
// the first one that does after a while does not count either.
func (p *prober) explains(now ib.Instant, rtt *rttEstimate) bool {
	was := p.unsure
	p.unsure = was && int64(now-p.againAt) <= 2*rtt.rto()
	return was
}

// timeRTT times packets with AckReq, one at a time. What looks lost may be late, and its answer too soon for the
// retransmission (Karn's algorithm, RFC 6298, 3), so retransmissions are timed only once the shortest round trip is
// known.
func (r *requester) timeRTT(now ib.Instant, tx *TxPacket) {
	p := &r.probe
	if tx.AckReq && !p.timing && (!tx.Again || r.q.flow.rtt.least > 0) {
		p.timing, p.resent, p.again, p.timed, p.timedAt = true, tx.Again, never, tx.PSN, now
	}
}

// heard is called when una has moved. It ends the probe and measures the round trip.
func (r *requester) heard(now ib.Instant) {
	r.probe.due = 0
	r.probeAnswered(now)
	r.measure(now)
	r.armProbe(now)
}

// measure adds the round trip of the timed packet to the estimate, once it is acknowledged.
// If a probe or an ACK timeout has sent packets again since, it is uncertain which packet
// was answered (Karn's algorithm, RFC 6298, 3):
//   - An answer that comes too soon after the retransmission answers the timed packet.
//   - One that comes later after it than an answer takes, by the estimate, shows that the
//     path has become longer: its round trip is at least the time since the retransmission.
//   - In between the sample is dropped. But an ACK timeout does not back off, as probes do,
//     so after one the estimate is raised: timeouts that are too early raise it repeatedly.
func (r *requester) measure(now ib.Instant) {
	p, rtt := &r.probe, &r.q.flow.rtt
	if !p.timing || !r.arrived(p.timed) {
		return
	}
	p.timing = false
	rtt.begin(now)
	sample, since := int64(now-p.timedAt), int64(now-p.againAt)
	switch {
	case p.resent && sample < rtt.least: // the answer to the original
	case p.again == never:
		rtt.sure(sample)
		r.q.cfg.Stats.RTT.add(uint32(sample / 1000))
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

// arrived reports whether the peer has said that it has received a packet, or has answered it.
func (r *requester) arrived(psn ib.PSN) bool {
	_, held := r.win.held.run(psn, 1)
	_, sacked := r.win.sacked.run(psn, 1)
	return psn.Before(r.win.una) || held || sacked
}

// lostTimed stops timing a packet that is to be sent again.
func (r *requester) lostTimed() {
	if _, lost := r.win.need.run(r.probe.timed, 1); lost {
		r.probe.timing = false
	}
}

// probeAnswered is called for an answer that may be due to a probe. If it arrives within the
// estimated time for an answer, the probe was justified by a loss, and the count of probes is
// halved: a network that loses packets for hours must not exhaust probesMost. If it arrives
// later, the path may have become longer, and the waits stay as long as they are until a
// round trip is measured.
func (r *requester) probeAnswered(now ib.Instant) {
	p := &r.probe
	if p.sent > probesCarried && int64(now-p.againAt) <= r.q.flow.rtt.rto() {
		p.sent /= 2
	}
}

// armProbe starts the probe timer if an answer was requested and is missing.
func (r *requester) armProbe(now ib.Instant) {
	p := &r.probe
	if !r.q.cfg.Probe || r.q.flow.noProbes || p.sent == probesMost || !r.win.holds(r.ackReqs.latest) {
		r.q.timers.clear(timerProbe)
		return
	}
	wait := r.q.flow.rtt.overdue() << p.sent
	if p.sent > 0 {
		wait = r.spread(wait)
	}
	r.q.timers.set(timerProbe, now+ib.Instant(wait))
}

// spread returns a time up to a quarter shorter or longer. QPs that have lost their packets at one instant, in a queue
// that was full, must not all try again at one.
func (r *requester) spread(wait int64) int64 {
	x := uint32(r.q.cfg.Num)*0x9E3779B1 ^ uint32(r.win.una)*0x85EBCA77 ^ uint32(r.probe.sent)*0xC2B2AE3D
	x = (x ^ x>>15) * 0x2C1B3C6D
	return wait*3/4 + wait/2*int64(x>>16)>>16
}

// probeTimeout starts a probe, unless all that is in flight is marked to be sent again.
func (r *requester) probeTimeout(now ib.Instant) {
	if r.sentEnd() == r.win.una || r.q.flow.noProbes {
		return
	}
	p := &r.probe
	p.due = 2
	p.sent++
	r.q.cfg.Stats.TailProbes++
	r.q.recordTimer(TimerProbe, int(r.recovery.retries))
	r.armProbe(now)
}

// probePacket builds the next packet of a probe: the oldest in flight, then the latest,
// unless the first covers both. A packet of a READ asks for all that is missing of it
// (see repeat).
func (r *requester) probePacket(now ib.Instant, tx *TxPacket) bool {
	p := &r.probe
	if p.due == 0 {
		return false
	}
	psn, end := r.win.una, r.sentEnd()
	if p.due == 1 {
		psn = end.Add(-1)
	}
	if _, held := r.win.held.run(psn, 1); held || r.blocked(psn) {
		p.due = 0
		return false
	}
	if !r.ready(psn) {
		return false
	}
	p.due--
	p.askedAgain(now, byProbe)
	_, n := r.repeat(psn, tx)
	if psn.Add(n) == end {
		p.due = 0
	}
	r.askForACK(tx, true)
	return true
}

// sentEnd returns the PSN up to which all that is in flight is sent: the oldest that is
// marked to be sent again, or nxt.
func (r *requester) sentEnd() ib.PSN {
	if psn, ok := r.win.firstNeeded(); ok {
		return psn
	}
	return r.win.nxt
}

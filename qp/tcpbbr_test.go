package qp

import (
	"slices"

	"github.com/goroce/goroce/ib"
)

// bbr is BBR, version 1, for a tcpFlow (tcp_bbr.c of Linux, draft-cardwell-iccrg-bbr-congestion-control-00). The packet
// conservation of the first round trip of a recovery is left out.
type bbr struct {
	state     bbrState
	rates     [10]float64 // the largest delivery rate of each of the latest rounds, in segments a nanosecond
	round     int
	roundEnds int // when so much is delivered
	least     ib.Instant
	leastAt   ib.Instant

	full       float64 // rate of startup that it has not grown by a quarter since
	fullRounds int
	phase      int // of the gain cycle
	phaseAt    ib.Instant
	lossy      bool // something was lost in this phase
	probeEnds  ib.Instant
	cwnd       float64
}

type bbrState uint8

const (
	bbrStartup bbrState = iota
	bbrDrain
	bbrProbeBW
	bbrProbeRTT
)

const (
	bbrHigh     = 2.885
	bbrLeast    = 4 // segments
	bbrLeastFor = 10_000 * ms
	bbrProbe    = 200 * ms
)

var bbrCycle = [...]float64{1.25, 0.75, 1, 1, 1, 1, 1, 1}

func (b *bbr) window() float64 {
	switch {
	case b.round == 0:
		return tcpStart
	case b.state == bbrProbeRTT:
		return bbrLeast
	}
	return max(b.cwnd, bbrLeast)
}

func (b *bbr) rate() float64 { return slices.Max(b.rates[:]) }

// holds returns what the path holds, in segments, with a gain.
func (b *bbr) holds(gain float64) float64 { return gain * b.rate() * float64(b.least) }

func (b *bbr) pace() float64 {
	if b.round == 0 {
		return bbrHigh * tcpStart / float64(ms)
	}
	gain := 1.0
	switch b.state {
	case bbrStartup:
		gain = bbrHigh
	case bbrDrain:
		gain = 1 / bbrHigh
	case bbrProbeBW:
		gain = bbrCycle[b.phase]
	}
	return 0.99 * gain * b.rate()
}

func (b *bbr) acked(f *tcpFlow, now ib.Instant, n int, latest *transmission) {
	begins := latest.delivered >= b.roundEnds
	if begins {
		b.round++
		b.roundEnds, b.rates[b.round%len(b.rates)] = f.delivered, 0
	}
	took := max(now-latest.deliveredAt, latest.at-latest.firstAt, 1)
	max10 := &b.rates[b.round%len(b.rates)]
	*max10 = max(*max10, float64(f.delivered-latest.delivered)/float64(took))
	if begins {
		b.fill()
	}
	b.advance(f, now)
	b.shorten(f, now, now-latest.at)
	if b.state == bbrStartup {
		b.cwnd = min(max(b.cwnd, tcpStart)+float64(n), max(b.holds(bbrHigh)+3, tcpStart))
	} else if most := b.holds(2) + 3; b.state == bbrDrain {
		b.cwnd = min(b.cwnd+float64(n), max(b.holds(bbrHigh)+3, tcpStart))
	} else {
		b.cwnd = min(max(b.cwnd, bbrLeast)+float64(n), most)
	}
}

// fill ends startup once the rate has not grown for three rounds.
func (b *bbr) fill() {
	if b.state != bbrStartup {
		return
	}
	if b.rate() >= 1.25*b.full {
		b.full, b.fullRounds = b.rate(), 0
	} else if b.fullRounds++; b.fullRounds >= 3 {
		b.state = bbrDrain
	}
}

// advance is the cycle of gains.
func (b *bbr) advance(f *tcpFlow, now ib.Instant) {
	if b.state == bbrDrain && float64(f.inFlight) <= b.holds(1) {
		b.state, b.phase, b.phaseAt, b.lossy = bbrProbeBW, 2, now, false
	}
	if b.state != bbrProbeBW {
		return
	}
	next := now-b.phaseAt > b.least
	switch gain := bbrCycle[b.phase]; {
	case gain > 1:
		next = next && (b.lossy || float64(f.inFlight) >= b.holds(gain))
	case gain < 1:
		next = next || float64(f.inFlight) <= b.holds(1)
	}
	if next {
		b.phase, b.phaseAt, b.lossy = (b.phase+1)%len(bbrCycle), now, false
	}
}

// shorten keeps the shortest round trip of ten seconds, and looks for it with an empty path if there was none.
func (b *bbr) shorten(f *tcpFlow, now, rtt ib.Instant) {
	expired := b.leastAt > 0 && now > b.leastAt+bbrLeastFor
	if b.leastAt == 0 || rtt <= b.least || expired {
		b.least, b.leastAt = rtt, now
	}
	switch {
	case expired && b.state != bbrProbeRTT:
		b.state, b.probeEnds = bbrProbeRTT, 0
	case b.state != bbrProbeRTT:
	case b.probeEnds == 0:
		if f.inFlight <= bbrLeast {
			b.probeEnds = now + bbrProbe
		}
	case now > b.probeEnds:
		b.leastAt = now
		if b.state, b.phase, b.phaseAt = bbrProbeBW, 2, now; b.fullRounds < 3 {
			b.state = bbrStartup
		}
	}
}

func (b *bbr) lost(*tcpFlow, ib.Instant)   { b.lossy = true }
func (b *bbr) silent(*tcpFlow, ib.Instant) { b.cwnd = bbrLeast }

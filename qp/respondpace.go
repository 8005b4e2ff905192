package qp

import (
	"math"

	"github.com/goroce/goroce/ib"
)

// This file spaces READ responses. A responder that answers a READ as fast as it can sends a burst, at the rate of its
// own link. A queue on the way that is short, or nearly full, loses a part of it, so that a flow of READs has less than
// one of WRITEs, which are paced. Who asks knows how much the path carries, and asks for no more than that. So once
// several responses in a row were lost, or a CNP has come, responses leave not much faster than READs ask for them. On
// any other path they leave at once.
//
// How fast READs ask is measured over as many of them as a peer may have outstanding, which takes a round trip at
// least, and as many before these. What is asked for again leaves at once: the peer waits for it.

const (
	// responseGain is how much faster responses leave than READs ask for them, so that these need not become fewer.
	responseGain = 1.5
	// lostInRow is how many responses that are lost in a row show that a burst was too long. A single one may be lost
	// by chance.
	lostInRow = 2
	// responsesPacedFor is for how long responses are spaced after the latest loss, in nanoseconds.
	responsesPacedFor = shortFor
	// spreadMost is how long the responses of a READ may take in all, in nanoseconds. A peer that asks for one now and
	// then waits for it.
	spreadMost = 5_000_000
	// firstPause is the time without a READ after which nothing is known of those before it, in nanoseconds, unless
	// that is known to be shorter.
	firstPause = 100_000_000
)

// demand is what READs ask for.
type demand struct {
	since, took  ib.Instant
	reads, bytes int
}

// congested notes a sign that responses are too fast.
func (l *lossyReads) congested(now ib.Instant) { l.until = now + responsesPacedFor }

// lost notes that a part of a READ of n responses is asked for again. While nothing else is asked for, time does not
// count.
func (l *lossyReads) lost(now ib.Instant, part psnRange, n int) {
	l.asked[0].since += now - l.heard
	l.heard = now
	lost := part.to.Sub(part.from)
	if lost < n && (lost >= lostInRow || now < l.until) { // if all of it is missing, the request was lost, or is late
		l.congested(now)
	}
}

// asks counts a READ of n bytes. most is how many may be outstanding.
func (l *lossyReads) asks(now ib.Instant, n, most int) {
	if l == nil {
		return
	}
	latest, before := &l.asked[0], &l.asked[1]
	pause := ib.Instant(firstPause)
	if before.reads > 0 {
		pause = before.took
	}
	if now-l.heard > pause {
		*before, *latest, l.nsPerKB = demand{}, demand{since: now}, 0
	}
	l.heard = now
	latest.reads++
	latest.bytes += n
	latest.took = now - latest.since
	if before.reads > 0 {
		l.nsPerKB = float64(latest.took+before.took) * 1024 / float64(max(latest.bytes+before.bytes, 1)) / responseGain
		l.nsPerKB = min(l.nsPerKB, spreadMost*1024/float64(max(n, 1)))
	}
	if latest.reads >= most {
		*before, *latest = *latest, demand{since: now}
	}
}

// mayRespond reports whether the next response of s may leave now; else a timer is set. Responses leave in quanta, each
// of what leaves in quantumLeast.
func (r *responder) mayRespond(now ib.Instant, s *resource) bool {
	l := r.lossy
	if l == nil || s.kind != resRead || s.again || now >= l.until || l.free < now+quantumLeast {
		return true
	}
	r.q.timers.set(timerResponse, l.free)
	return false
}

// responded accounts for a response and those that follow it in its train, unless READs have asked for it before.
func (l *lossyReads) responded(now ib.Instant, tx *TxPacket) {
	if l == nil || !tx.Opcode.IsReadResp() || tx.Again {
		return
	}
	l.free = max(l.free, now) + ib.Instant(float64((1+tx.Train)*tx.Len)*l.nsPerKB/1024)
}

// train returns how many responses of so many bytes may leave, at least 1.
func (l *lossyReads) train(now ib.Instant, bytes int) int {
	if l == nil || l.nsPerKB == 0 || now >= l.until {
		return math.MaxInt
	}
	return max(int(float64(now+quantumLeast-l.free)/l.nsPerKB*1024)/max(bytes, 1), 1)
}

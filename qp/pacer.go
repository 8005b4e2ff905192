package qp

import (
	"math"

	"github.com/goroce/goroce/ib"
)

// pacer spaces a QP's requests to a rate. What it spaces are trains, of one packet or more:
// the next one leaves when the bytes of the whole train before it have taken their time.
// The zero pacer does not pace.
type pacer struct {
	nsPerKB int64 // nanoseconds that 1,024 bytes take; 0 is no limit
	free    ib.Instant
	burst   int // bytes that a train may have; with 0 each packet leaves by itself
}

// setRate sets the rate in kilobits per second; 0 means no limit.
func (p *pacer) setRate(kbps uint32) {
	p.nsPerKB = 0
	if kbps != 0 {
		p.nsPerKB = 8 * 1024 * 1_000_000 / int64(kbps)
	}
}

// ready returns when the next train may be sent; a time not after now means at once.
func (p *pacer) ready() ib.Instant {
	if p.nsPerKB == 0 {
		return 0
	}
	return p.free
}

// train returns how many packets of so many bytes may be sent as one train, at least 1.
func (p *pacer) train(bytes int) int {
	if p.nsPerKB == 0 {
		return math.MaxInt
	}
	return max(p.burst/bytes, 1)
}

// sent accounts for a train of n bytes in all. Idle time does not allow more afterwards.
func (p *pacer) sent(now ib.Instant, n int) {
	if p.nsPerKB == 0 {
		return
	}
	p.free = max(p.free, now) + ib.Instant(int64(n)*p.nsPerKB/1024)
}

// bucket spaces what leaves to a destination, in quanta that several QPs may share.
type bucket struct {
	nsPerKB float64    // nanoseconds that 1,024 bytes take; 0 is no limit
	free    ib.Instant // when what has left has taken its time
	quantum ib.Instant // by how much it may leave earlier
}

const (
	// quantumMost is the largest quantum, in KiB, unless it takes less than quantumLeast nanoseconds: no thread wakes
	// more often.
	quantumMost  = 16
	quantumLeast = 50_000
	// catchUp is for how long a bucket that was not used keeps its right to send, in nanoseconds: timers are late.
	catchUp = 100_000
)

// set sets the rate, in nanoseconds for 1,024 bytes. A quantum is a quarter of the window, which is as often as
// ACKs come.
func (b *bucket) set(nsPerKB, cwnd float64) {
	b.nsPerKB = nsPerKB
	b.quantum = ib.Instant(max(min(cwnd/4, quantumMost)*nsPerKB, quantumLeast))
}

// ready returns when the next packet may leave; a time not after now means at once.
func (b *bucket) ready(now ib.Instant) ib.Instant {
	if b.free < now+b.quantum {
		return now
	}
	return b.free
}

// train returns how many packets of so many bytes may leave, at least 1.
func (b *bucket) train(now ib.Instant, bytes int) int {
	if b.nsPerKB == 0 {
		return math.MaxInt
	}
	return max(int(float64(now+b.quantum-b.free)/b.nsPerKB*1024)/bytes, 1)
}

// sent accounts for n bytes. A READ that is sent again may ask for many, while the window has become small: all QPs of
// the destination would wait until these have taken their time.
func (b *bucket) sent(now ib.Instant, n int) {
	b.free = max(b.free, now-catchUp) + ib.Instant(float64(n)*b.nsPerKB/1024)
	b.free = min(b.free, now+paceMost)
}

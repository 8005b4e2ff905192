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

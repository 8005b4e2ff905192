package qp

import "github.com/goroce/goroce/ib"

// pacer spaces a QP's requests to a rate. The zero pacer does not pace.
type pacer struct {
	nsPerKB int64 // nanoseconds that 1,024 bytes take; 0 is no limit
	free    ib.Instant
}

// setRate sets the rate in kilobits per second; 0 means no limit.
func (p *pacer) setRate(kbps uint32) {
	p.nsPerKB = 0
	if kbps != 0 {
		p.nsPerKB = 8 * 1024 * 1_000_000 / int64(kbps)
	}
}

// ready returns when the next packet may be sent; a time not after now means at once.
func (p *pacer) ready() ib.Instant {
	if p.nsPerKB == 0 {
		return 0
	}
	return p.free
}

// sent accounts for a packet of n bytes. Idle time does not allow a burst afterwards.
func (p *pacer) sent(now ib.Instant, n int) {
	if p.nsPerKB == 0 {
		return
	}
	p.free = max(p.free, now) + ib.Instant(int64(n)*p.nsPerKB/1024)
}
